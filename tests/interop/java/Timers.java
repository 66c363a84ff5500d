import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Timer messages of the Java producer, and their recall: one producer for a list of steps. */
final class Timers {
    private static int instances = 0;

    private Timers() {
    }

    static List<Object> answer(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("timer_producers");
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName("timers-" + instances++);
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        List<Object> results = new ArrayList<>();
        try {
            for (Object one : request.getJSONArray("steps")) {
                Map<String, Object> shown = new LinkedHashMap<>();
                try {
                    step(producer, request.getString("topic"), (JSONObject) one, shown);
                } catch (MQBrokerException refused) {
                    shown.put("code", refused.getResponseCode());
                    shown.put("remark", refused.getErrorMessage());
                }
                results.add(shown);
            }
        } finally {
            producer.shutdown();
        }
        return results;
    }

    private static void step(
        DefaultMQProducer producer, String topic, JSONObject given, Map<String, Object> shown) throws Exception {
        if (given.containsKey("recall")) {
            shown.put("recalled", producer.recallMessage(topic, given.getString("recall")));
            return;
        }
        Message message = new Message(topic, Base64.getDecoder().decode(given.getString("body")));
        if (given.containsKey("delay_s")) {
            message.setDelayTimeSec(given.getLongValue("delay_s"));
        } else if (given.containsKey("delay_ms")) {
            message.setDelayTimeMs(given.getLongValue("delay_ms"));
        } else {
            message.setDeliverTimeMs(given.getLongValue("deliver_ms"));
        }
        SendResult sent = producer.send(message);
        shown.put("status", sent.getSendStatus().name());
        shown.put("msg_id", sent.getMsgId());
        shown.put("handle", sent.getRecallHandle());
    }
}
