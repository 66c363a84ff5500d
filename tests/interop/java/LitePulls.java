import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Polls a topic by the lite pull consumer, which shares its queues as a push consumer does. */
final class LitePulls {
    private static int instances = 0;

    private LitePulls() {
    }

    static Object answer(JSONObject request) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName("lite-" + instances++);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.start();
        List<Object> results = new ArrayList<>();
        try {
            int count = request.getIntValue("count");
            long end = System.currentTimeMillis() + request.getLongValue("timeout_ms");
            while (results.size() < count && System.currentTimeMillis() < end) {
                for (MessageExt message : consumer.poll(200)) {
                    results.add(Driver.received(message));
                }
            }
            consumer.commit();
        } finally {
            consumer.shutdown();
        }
        return results;
    }
}
