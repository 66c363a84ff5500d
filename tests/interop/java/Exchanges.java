import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions and request-reply of the Java client; what was started stays until it is closed. */
final class Exchanges {
    private static final Map<String, Runnable> OPEN = new ConcurrentHashMap<>();
    private static final Map<String, TransactionMQProducer> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, ConcurrentLinkedQueue<String>> CHECKED = new ConcurrentHashMap<>();
    private static int instances = 0;

    private Exchanges() {
    }

    static Object answer(JSONObject request) throws Exception {
        String client = request.getString("client");
        switch (request.getString("what")) {
            case "transactions":
                return transactions(request);
            case "transact":
                return transact(PRODUCERS.get(client), request);
            case "checked":
                return new ArrayList<>(CHECKED.get(client));
            case "traced":
                return traced(request);
            case "answers":
                return answers(request);
            case "request":
                return ask(request);
            case "close":
                OPEN.remove(client).run();
                return null;
            default:
                throw new IllegalArgumentException(request.getString("what"));
        }
    }

    private static String name() {
        return "exchange-" + instances++;
    }

    private static LocalTransactionState state(String text) {
        switch (text == null ? "unknown" : text) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    private static String transactions(JSONObject request) throws Exception {
        String id = name();
        TransactionMQProducer producer = new TransactionMQProducer(request.getString("group"));
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(id);
        producer.setSendMsgTimeout(10_000);
        ConcurrentLinkedQueue<String> checked = new ConcurrentLinkedQueue<>();
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
                return state(message.getUserProperty("local"));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.add(message.getKeys());
                return state(message.getUserProperty("check"));
            }
        });
        producer.start();
        PRODUCERS.put(id, producer);
        CHECKED.put(id, checked);
        OPEN.put(id, producer::shutdown);
        return id;
    }

    private static List<Object> transact(TransactionMQProducer producer, JSONObject request) throws Exception {
        List<Object> results = new ArrayList<>();
        JSONArray messages = request.getJSONArray("messages");
        for (int i = 0; i < messages.size(); i++) {
            JSONObject one = messages.getJSONObject(i);
            Message message =
                new Message(request.getString("topic"), Base64.getDecoder().decode(one.getString("body")));
            message.setKeys(one.getString("keys"));
            for (String property : new String[] {"local", "check"}) {
                if (one.getString(property) != null) {
                    message.putUserProperty(property, one.getString(property));
                }
            }
            TransactionSendResult sent = producer.sendMessageInTransaction(message, null);
            Map<String, Object> shown = new LinkedHashMap<>();
            shown.put("status", sent.getSendStatus().name());
            shown.put("state", sent.getLocalTransactionState().name());
            shown.put("transaction", sent.getTransactionId());
            shown.put("msg_id", sent.getMsgId());
            shown.put("offset", sent.getQueueOffset());
            results.add(shown);
        }
        return results;
    }

    /** Sends one message by a producer that traces what it does, and stays: traces go out later. */
    private static Map<String, Object> traced(JSONObject request) throws Exception {
        String id = name();
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("group"), true, null);
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(id);
        producer.start();
        OPEN.put(id, producer::shutdown);
        Message message = new Message(request.getString("topic"), "traced".getBytes());
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("client", id);
        shown.put("msg_id", producer.send(message, 10_000).getMsgId());
        return shown;
    }

    /** Answers every message of a topic with its body and "re:" before it. */
    private static String answers(JSONObject request) throws Exception {
        String id = name();
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("group") + "_replies");
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(id);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(id + "-consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = ("re:" + new String(message.getBody())).getBytes();
                    producer.send(MessageUtil.createReplyMessage(message, body), 5_000);
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        OPEN.put(id, () -> {
            consumer.shutdown();
            producer.shutdown();
        });
        return id;
    }

    private static Map<String, Object> ask(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("group"));
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(name());
        producer.start();
        try {
            Message message =
                new Message(request.getString("topic"), Base64.getDecoder().decode(request.getString("body")));
            Message reply = producer.request(message, request.getLongValue("timeout_ms"));
            Map<String, Object> shown = new LinkedHashMap<>();
            shown.put("body", Base64.getEncoder().encodeToString(reply.getBody()));
            shown.put("properties", reply.getProperties());
            return shown;
        } finally {
            producer.shutdown();
        }
    }
}
