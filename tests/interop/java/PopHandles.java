import com.alibaba.fastjson2.JSON;
import java.util.*;
import org.apache.rocketmq.common.KeyBuilder;
import org.apache.rocketmq.remoting.protocol.body.*;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;

/** Prints receipt handles, tables of offsets and a batch of acknowledgements as Java RocketMQ writes them. */
public class PopHandles {
    static void print(Object... pairs) {
        Map<String, Object> line = new TreeMap<>();
        for (int i = 0; i < pairs.length; i += 2) line.put((String) pairs[i], pairs[i + 1]);
        System.out.println(JSON.toJSONString(line));
    }

    static void handle(long start, long pop, long invisible, int revive, String topic, String broker, int queue, long offset) {
        print("kind", "handle", "fields", Arrays.asList(start, pop, invisible, revive, broker, queue, offset), "topic", topic,
            "text", ExtraInfoUtil.buildExtraInfo(start, pop, invisible, revive, topic, broker, queue, offset));
    }

    static void odd(String text) {
        Object read;
        try {
            String[] all = ExtraInfoUtil.split(text);
            read = Arrays.asList(ExtraInfoUtil.getCkQueueOffset(all), ExtraInfoUtil.getPopTime(all), ExtraInfoUtil.getInvisibleTime(all),
                ExtraInfoUtil.getReviveQid(all), ExtraInfoUtil.getRetry(all), ExtraInfoUtil.getBrokerName(all), ExtraInfoUtil.getQueueId(all),
                ExtraInfoUtil.getQueueOffset(all));
        } catch (Exception e) {
            read = "!" + e.getClass().getSimpleName();
        }
        print("kind", "odd", "text", text, "read", read);
    }

    public static void main(String[] args) {
        String v1 = KeyBuilder.buildPopRetryTopicV1("T", "g"), v2 = KeyBuilder.buildPopRetryTopicV2("T", "g");
        for (String topic : new String[] {"T", v1, v2, "%RETRY%g"}) handle(100, 1700000000000L, 30000, 3, topic, "broker-a", 2, 105);
        handle(0, 0, 0, 999, "T", "b", 0, 0);
        handle(Long.MAX_VALUE, Long.MAX_VALUE, -1, Integer.MAX_VALUE, v2, "name with no end", 7, 1L << 40);
        for (String topic : new String[] {"T", v1, v2})
            print("kind", "real", "topic", ExtraInfoUtil.getRealTopic("T", "g", ExtraInfoUtil.buildExtraInfo(0, 0, 0, 0, topic, "b", 0, 0).split(" ")[4]), "given", topic);
        for (String text : new String[] {"", " ", "1 2 3", "1 2 3 4 0 b 5", "1 2 3 4 0 b 5 6", "1 2 3 4 0 b 5 6 7", "1 2 3 4 9 b 5 6", "1 2 3 x 0 b 5 6",
            "1  2 3 4 0 b 5 6", "-1 2 3 4 0 b 5 6", "1 2 3 4294967296 0 b 5 6", "9223372036854775808 2 3 4 0 b 5 6", "+1 2 3 4 0 b 5 6", "1 2 3 4 0  5 6"}) odd(text);
        StringBuilder starts = new StringBuilder(), offsets = new StringBuilder(), counts = new StringBuilder();
        ExtraInfoUtil.buildStartOffsetInfo(starts, "T", 3, 100);
        ExtraInfoUtil.buildStartOffsetInfo(starts, v1, 0, 7);
        ExtraInfoUtil.buildStartOffsetInfo(starts, v2, 0, 1L << 40);
        ExtraInfoUtil.buildMsgOffsetInfo(offsets, "T", 3, Arrays.asList(100L, 101L, 105L));
        ExtraInfoUtil.buildMsgOffsetInfo(offsets, v1, 0, Arrays.asList(7L));
        ExtraInfoUtil.buildMsgOffsetInfo(offsets, v2, 0, Arrays.asList(1L << 40));
        ExtraInfoUtil.buildQueueIdOrderCountInfo(counts, "T", 3, 1);
        ExtraInfoUtil.buildQueueOffsetOrderCountInfo(counts, "T", 3, 101, 2);
        print("kind", "tables", "starts", starts.toString(), "offsets", offsets.toString(), "counts", counts.toString());
        BatchAck ack = new BatchAck();
        ack.setConsumerGroup("g"); ack.setTopic("T"); ack.setRetry("1"); ack.setStartOffset(100); ack.setQueueId(2); ack.setReviveQueueId(5);
        ack.setPopTime(1700000000000L); ack.setInvisibleTime(30000);
        BitSet bits = new BitSet();
        for (int bit : new int[] {0, 1, 7, 8, 31, 64, 1000}) bits.set(bit);
        ack.setBitSet(bits);
        BatchAckMessageRequestBody body = new BatchAckMessageRequestBody();
        body.setBrokerName("broker-a");
        body.setAcks(Collections.singletonList(ack));
        print("kind", "batch", "body", new String(body.encode()), "offsets", Arrays.asList(100, 101, 107, 108, 131, 164, 1100));
    }
}
