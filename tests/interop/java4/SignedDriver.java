import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Clients and tools of RocketMQ 4.9 that sign; lines of JSON in, lines of JSON out. */
public final class SignedDriver {
    private static final PrintStream ANSWERS = System.out;
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
        Runtime.getRuntime().halt(0);
    }

    private static Object answer(JSONObject request) throws Exception {
        RPCHook hook = request.getString("key") == null ? null : new AclClientRPCHook(
            new SessionCredentials(request.getString("key"), request.getString("secret")));
        switch (request.getString("do")) {
            case "mqadmin":
                return mqadmin(request.getJSONArray("args"));
            case "send":
                return send(request, hook);
            case "consume":
                return consume(request, hook);
            default:
                throw new IllegalArgumentException(request.getString("do"));
        }
    }

    /** The tools sign with what `conf/tools.yml` of RocketMQ's home has, whatever the hook. */
    private static String mqadmin(JSONArray args) {
        ByteArrayOutputStream shown = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(shown, true);
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(capture);
        System.setErr(capture);
        try {
            MQAdminStartup.main0(args.toArray(new String[0]), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return shown.toString();
    }

    private static List<String> send(JSONObject request, RPCHook hook) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("group"), hook);
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName("signed-" + instances++);
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        List<String> results = new ArrayList<>();
        try {
            for (Object body : request.getJSONArray("bodies")) {
                byte[] bytes = Base64.getDecoder().decode(body.toString());
                Message message = new Message(request.getString("topic"), bytes);
                results.add(producer.send(message).getSendStatus().name());
            }
        } finally {
            producer.shutdown();
        }
        return results;
    }

    private static List<String> consume(JSONObject request, RPCHook hook) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            request.getString("group"), hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName("signed-" + instances++);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setVipChannelEnabled(false);
        consumer.subscribe(request.getString("topic"), "*");
        LinkedBlockingQueue<String> came = new LinkedBlockingQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                came.add(Base64.getEncoder().encodeToString(message.getBody()));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        List<String> results = new ArrayList<>();
        try {
            int count = request.getIntValue("count");
            long end = System.currentTimeMillis() + request.getLongValue("timeout_ms");
            while (results.size() < count && System.currentTimeMillis() < end) {
                String one = came.poll(100, TimeUnit.MILLISECONDS);
                if (one != null) {
                    results.add(one);
                }
            }
        } finally {
            consumer.shutdown();
        }
        return results;
    }
}
