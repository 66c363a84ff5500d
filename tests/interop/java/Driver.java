import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The Java side of the interoperation tests, in one JVM because starting one takes seconds.
 * Each line of standard input is a JSON request, each line of standard output its JSON answer.
 */
public final class Driver {
    private static final PrintStream ANSWERS = System.out;
    private static final Map<String, Runnable> STAYING = new LinkedHashMap<>();
    private static int instances = 0;

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ANSWERS.println("{\"ready\":true}");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONObject request = JSON.parseObject(line);
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("result", answer(request));
            } catch (Throwable error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            ANSWERS.println(JSON.toJSONString(answer));
            ANSWERS.flush();
        }
        // Client threads that are not daemons must not keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    private static Object answer(JSONObject request) throws Exception {
        switch (request.getString("do")) {
            case "mqadmin":
                return mqadmin(request.getJSONArray("args"), request.getLongValue("limit_ms", 50_000));
            case "send":
                return send(request);
            case "consume":
                return consume(request);
            case "lite_pull":
                return LitePulls.answer(request);
            case "exchange":
                return Exchanges.answer(request);
            case "timers":
                return Timers.answer(request);
            case "filter":
                return Filters.evaluate(request);
            case "stay":
                return stay(request);
            case "leave":
                return leave(request);
            default:
                throw new IllegalArgumentException(request.getString("do"));
        }
    }

    /** Starts a client that stays connected until "leave"; it consumes what comes. */
    private static String stay(JSONObject request) throws Exception {
        String name = "driver-" + instances++;
        if ("producer".equals(request.getString("kind"))) {
            DefaultMQProducer producer = new DefaultMQProducer(request.getString("group"));
            producer.setNamesrvAddr(request.getString("namesrv"));
            producer.setInstanceName(name);
            producer.start();
            producer.send(new Message(request.getString("topic"), "hello".getBytes()));
            STAYING.put(producer.buildMQClientId(), producer::shutdown);
            return producer.buildMQClientId();
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(request.getString("topic"), request.getString("tags"));
        consumer.registerMessageListener((MessageListenerConcurrently)
            (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        STAYING.put(consumer.buildMQClientId(), consumer::shutdown);
        return consumer.buildMQClientId();
    }

    private static String leave(JSONObject request) {
        STAYING.remove(request.getString("client")).run();
        return "left";
    }

    /** Runs one command; one that does not end by itself is interrupted after its time. */
    private static String mqadmin(JSONArray args, long limitMs) throws Exception {
        // The tool means to run once a process: its command objects keep closed clients.
        Field commands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        commands.setAccessible(true);
        ((List<?>) commands.get(null)).clear();
        ByteArrayOutputStream shown = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(shown, true, StandardCharsets.UTF_8);
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(capture);
        System.setErr(capture);
        try {
            String[] words = args.toArray(new String[0]);
            Thread thread = new Thread(() -> MQAdminStartup.main0(words, null));
            thread.setDaemon(true);
            thread.start();
            long end = System.currentTimeMillis() + limitMs;
            while (thread.isAlive() && System.currentTimeMillis() < end) {
                thread.join(20);
                hasten(thread);
            }
            // What an interrupted command says of it belongs to nobody's answer.
            capture.flush();
            String answer = shown.toString(StandardCharsets.UTF_8);
            if (thread.isAlive()) {
                thread.interrupt();
                for (int round = 0; thread.isAlive() && round < 500; round++) {
                    thread.join(20);
                    hasten(thread);
                }
            }
            return answer;
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
    }

    /** A closing client waits up to three seconds for its idle event thread: wakes that up. */
    private static void hasten(Thread thread) {
        for (StackTraceElement frame : thread.getStackTrace()) {
            if (frame.getClassName().endsWith(".ServiceThread")) {
                Thread.getAllStackTraces().keySet().stream()
                    .filter(one -> one.getName().equals("NettyEventExecutor"))
                    .forEach(Thread::interrupt);
            }
        }
    }

    private static List<Object> send(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("group"));
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName("driver-" + instances++);
        producer.setSendMsgTimeout(10_000);
        producer.setVipChannelEnabled(request.getBooleanValue("fast"));
        if (request.getString("namespace") != null) {
            producer.setNamespace(request.getString("namespace"));
        }
        producer.start();
        try {
            String topic = request.getString("topic");
            List<Message> messages = new ArrayList<>();
            for (Object one : request.getJSONArray("messages")) {
                messages.add(message(topic, (JSONObject) one));
            }
            return sendAll(producer, request, messages);
        } finally {
            producer.shutdown();
        }
    }

    private static Message message(String topic, JSONObject given) {
        Message message = new Message(topic, Base64.getDecoder().decode(given.getString("body")));
        if (given.getString("tags") != null) {
            message.setTags(given.getString("tags"));
        }
        if (given.getString("keys") != null) {
            message.setKeys(given.getString("keys"));
        }
        JSONObject properties = given.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, value.toString()));
        }
        if (given.getInteger("delay") != null) {
            message.setDelayTimeLevel(given.getInteger("delay"));
        }
        return message;
    }

    private static List<Object> sendAll(
        DefaultMQProducer producer, JSONObject request, List<Message> messages) throws Exception {
        List<Object> results = new ArrayList<>();
        String mode = request.getString("mode");
        if ("batch".equals(mode)) {
            results.add(sent(producer.send(messages)));
            return results;
        }
        long pauseMs = request.getLongValue("pause_ms");
        for (Message message : messages) {
            if (pauseMs > 0) {
                TimeUnit.MILLISECONDS.sleep(pauseMs);
            }
            if ("oneway".equals(mode)) {
                producer.sendOneway(message);
            } else if ("ordered".equals(mode)) {
                int shard = Integer.parseInt(message.getUserProperty("shard"));
                results.add(sent(producer.send(
                    message, (queues, m, arg) -> queues.get((Integer) arg % queues.size()), shard)));
            } else {
                results.add(sent(producer.send(message)));
            }
        }
        if ("oneway".equals(mode)) {
            TimeUnit.MILLISECONDS.sleep(300);
        }
        return results;
    }

    private static Map<String, Object> sent(SendResult result) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("status", result.getSendStatus().name());
        shown.put("msg_id", result.getMsgId());
        shown.put("offset_msg_id", result.getOffsetMsgId());
        shown.put("broker", result.getMessageQueue().getBrokerName());
        shown.put("queue", result.getMessageQueue().getQueueId());
        shown.put("offset", result.getQueueOffset());
        return shown;
    }

    /** Consumes until `count` messages came (or the time is over), and a little longer. */
    private static List<Object> consume(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName("driver-" + instances++);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (request.getString("namespace") != null) {
            consumer.setNamespace(request.getString("namespace"));
        }
        if (request.getBooleanValue("pop")) {
            consumer.setClientRebalance(false);
            consumer.setPopInvisibleTime(request.getLongValue("invisible_ms"));
        }
        consumer.setVipChannelEnabled(false);
        if (request.getString("sql") != null) {
            consumer.subscribe(request.getString("topic"), MessageSelector.bySql(request.getString("sql")));
        } else {
            consumer.subscribe(request.getString("topic"), request.getString("tags"));
        }
        LinkedBlockingQueue<Map<String, Object>> came = new LinkedBlockingQueue<>();
        Set<String> failed = ConcurrentHashMap.newKeySet();
        String failOnce = request.getString("fail_once");
        if (request.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> came.add(received(message)));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> came.add(received(message)));
                boolean fail = messages.stream().anyMatch(
                    m -> failOnce != null && failOnce.equals(m.getKeys()) && failed.add(failOnce));
                return fail
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        List<Object> results = new ArrayList<>();
        try {
            int count = request.getIntValue("count");
            long end = System.currentTimeMillis() + request.getLongValue("timeout_ms");
            while (results.size() < count && System.currentTimeMillis() < end) {
                Map<String, Object> one = came.poll(100, TimeUnit.MILLISECONDS);
                if (one != null) {
                    results.add(one);
                }
            }
            TimeUnit.MILLISECONDS.sleep(request.getLongValue("linger_ms"));
            came.drainTo(results);
        } finally {
            consumer.shutdown();
        }
        return results;
    }

    static Map<String, Object> received(MessageExt message) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("msg_id", message.getMsgId());
        shown.put("offset_msg_id", message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        shown.put("topic", message.getTopic());
        shown.put("queue", message.getQueueId());
        shown.put("offset", message.getQueueOffset());
        shown.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        shown.put("tags", message.getTags());
        shown.put("keys", message.getKeys());
        shown.put("times", message.getReconsumeTimes());
        shown.put("stored_size", message.getStoreSize());
        shown.put("log_offset", message.getCommitLogOffset());
        shown.put("properties", message.getProperties());
        return shown;
    }
}
