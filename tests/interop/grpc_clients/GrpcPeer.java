import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * The official Java client of gRPC, steered by lines of JSON.
 * Requests and answers are those of python_peer.py.
 */
public final class GrpcPeer {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final ClientConfiguration CONFIGURATION = ClientConfiguration.newBuilder()
        .setEndpoints(System.getProperty("endpoint"))
        .enableSsl(System.getenv("PEER_TLS") != null)
        .setRequestTimeout(Duration.ofSeconds(10))
        .build();
    private static final Map<String, Producer> PRODUCERS = new LinkedHashMap<>();
    private static final Map<String, List<String>> ASKED = new LinkedHashMap<>();
    private static final Map<String, SimpleConsumer> CONSUMERS = new LinkedHashMap<>();
    private static final Map<String, MessageView> RECEIVED = new LinkedHashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("{\"ready\":true}");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("result", answer(JSON.parseObject(line)));
            } catch (Throwable error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            answers.println(JSON.toJSONString(answer));
            answers.flush();
        }
        List<Closeable> open = new ArrayList<>(CONSUMERS.values());
        open.addAll(PRODUCERS.values());
        for (Closeable one : open) {
            one.close();
        }
        // Threads of the client must not keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    private static Object answer(JSONObject request) throws Exception {
        switch (request.getString("do")) {
            case "send":
                return send(request);
            case "transaction":
                return transaction(request);
            case "checked":
                return ASKED.get(request.getString("topic") + request.getString("check"));
            case "recall":
                return producer(request.getString("topic"), null)
                    .recallMessage(request.getString("topic"), request.getString("handle"))
                    .getMessageId().toString();
            case "open":
                CONSUMERS.put(request.getString("group"), PROVIDER.newSimpleConsumerBuilder()
                    .setClientConfiguration(CONFIGURATION)
                    .setConsumerGroup(request.getString("group"))
                    .setAwaitDuration(Duration.ofSeconds(request.getLongValue("wait_s", 5)))
                    .setSubscriptionExpressions(subscription(request))
                    .build());
                return null;
            case "receive":
                return receive(request);
            case "ack":
                CONSUMERS.get(request.getString("group")).ack(RECEIVED.get(request.getString("message")));
                return null;
            case "change":
                CONSUMERS.get(request.getString("group")).changeInvisibleDuration(
                    RECEIVED.get(request.getString("message")),
                    Duration.ofSeconds(request.getLongValue("invisible_s")));
                return null;
            case "close":
                CONSUMERS.remove(request.getString("group")).close();
                return null;
            case "push":
                return push(request);
            default:
                throw new IllegalArgumentException(request.getString("do"));
        }
    }

    private static Map<String, FilterExpression> subscription(JSONObject request) {
        FilterExpressionType kind =
            FilterExpressionType.valueOf(request.getOrDefault("kind", "TAG").toString());
        String expression = request.getOrDefault("expression", "*").toString();
        return Collections.singletonMap(
            request.getString("topic"), new FilterExpression(expression, kind));
    }

    private static Producer producer(String topic, String check) throws Exception {
        String key = topic + check;
        if (!PRODUCERS.containsKey(key)) {
            ProducerBuilder builder = PROVIDER.newProducerBuilder()
                .setClientConfiguration(CONFIGURATION).setTopics(topic);
            if (check != null) {
                List<String> asked = new CopyOnWriteArrayList<>();
                ASKED.put(key, asked);
                TransactionResolution verdict = "commit".equals(check)
                    ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
                builder.setTransactionChecker(message -> {
                    asked.add(message.getMessageId().toString());
                    return verdict;
                });
            }
            PRODUCERS.put(key, builder.build());
        }
        return PRODUCERS.get(key);
    }

    private static Message made(String topic, JSONObject one) {
        MessageBuilder builder = PROVIDER.newMessageBuilder()
            .setTopic(topic).setBody(Base64.getDecoder().decode(one.getString("body")));
        if (one.containsKey("tag")) {
            builder.setTag(one.getString("tag"));
        }
        if (one.containsKey("keys")) {
            builder.setKeys(one.getString("keys"));
        }
        if (one.containsKey("group")) {
            builder.setMessageGroup(one.getString("group"));
        }
        if (one.containsKey("due_ms")) {
            builder.setDeliveryTimestamp(one.getLongValue("due_ms"));
        }
        if (one.containsKey("priority")) {
            builder.setPriority(one.getIntValue("priority"));
        }
        JSONObject properties = one.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> builder.addProperty(name, value.toString()));
        }
        return builder.build();
    }

    private static Object send(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        Producer producer = producer(topic, null);
        List<Map<String, Object>> answers = new ArrayList<>();
        JSONArray messages = request.getJSONArray("messages");
        for (int at = 0; at < messages.size(); at++) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                SendReceipt receipt = producer.send(made(topic, messages.getJSONObject(at)));
                answer.put("id", receipt.getMessageId().toString());
                answer.put("recall", receipt.getRecallHandle());
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            answers.add(answer);
        }
        return answers;
    }

    private static Object transaction(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        Producer producer = producer(topic, request.getString("check"));
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt =
            producer.send(made(topic, request.getJSONObject("message")), transaction);
        if ("commit".equals(request.getString("end"))) {
            transaction.commit();
        } else if ("rollback".equals(request.getString("end"))) {
            transaction.rollback();
        }
        return Collections.singletonMap("id", receipt.getMessageId().toString());
    }

    private static Object receive(JSONObject request) throws Exception {
        List<Object> found = new ArrayList<>();
        for (MessageView message : CONSUMERS.get(request.getString("group")).receive(
            request.getIntValue("most"), Duration.ofSeconds(request.getLongValue("invisible_s")))) {
            RECEIVED.put(message.getMessageId().toString(), message);
            found.add(shown(message));
        }
        return found;
    }

    private static Object push(JSONObject request) throws Exception {
        List<Object> came = Collections.synchronizedList(new ArrayList<>());
        String refused = request.getString("fail_once");
        byte[] failOnce = refused == null ? null : Base64.getDecoder().decode(refused);
        AtomicBoolean fails = new AtomicBoolean(refused != null);
        MessageListener listener = message -> {
            came.add(shown(message));
            boolean bad = failOnce != null && Arrays.equals(failOnce, body(message))
                && fails.getAndSet(false);
            return bad ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        };
        Closeable consumer = PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(CONFIGURATION)
            .setConsumerGroup(request.getString("group"))
            .setSubscriptionExpressions(subscription(request))
            .setMessageListener(listener)
            .build();
        long end = System.nanoTime() + request.getLongValue("timeout_s") * 1_000_000_000L;
        while (came.size() < request.getIntValue("count") && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        Thread.sleep(request.getLongValue("linger_s", 0) * 1000);
        // Closing waits for polls that are under way: some 20 seconds.
        Thread closing = new Thread(() -> close(consumer));
        closing.setDaemon(true);
        closing.start();
        return new ArrayList<>(came);
    }

    private static void close(Closeable consumer) {
        try {
            consumer.close();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static byte[] body(MessageView message) {
        ByteBuffer body = message.getBody().duplicate();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return bytes;
    }

    private static Map<String, Object> shown(MessageView message) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("id", message.getMessageId().toString());
        shown.put("topic", message.getTopic());
        shown.put("body", Base64.getEncoder().encodeToString(body(message)));
        shown.put("tag", message.getTag().orElse(null));
        shown.put("keys", new TreeSet<>(message.getKeys()));
        shown.put("properties", message.getProperties());
        shown.put("group", message.getMessageGroup().orElse(null));
        shown.put("attempt", message.getDeliveryAttempt());
        shown.put("priority", message.getPriority().orElse(null));
        shown.put("at_ms", System.currentTimeMillis());
        shown.put("corrupted", false);
        return shown;
    }
}
