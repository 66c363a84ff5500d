import com.alibaba.fastjson2.JSON;
import java.net.InetSocketAddress;
import java.util.*;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.processor.PopMessageProcessor;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.remoting.netty.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.pop.*;

/** Prints the records of the revive topic as Java RocketMQ writes them: one JSON line each. */
public class PopRecords {
    static BrokerController broker;

    static PopCheckPoint point(String topic, String group, int queue, long start, long popTime, long invisible, int... diffs) {
        PopCheckPoint ck = new PopCheckPoint();
        ck.setTopic(topic); ck.setCId(group); ck.setQueueId(queue); ck.setStartOffset(start);
        ck.setPopTime(popTime); ck.setInvisibleTime(invisible); ck.setNum((byte) diffs.length);
        ck.setBrokerName("broker-a");
        for (int d : diffs) ck.addDiff(d);
        return ck;
    }

    static void print(String name, String topic, int queue, String body, String properties) {
        Map<String, Object> line = new TreeMap<>();
        line.put("name", name); line.put("topic", topic); line.put("queue", queue);
        line.put("body", body); line.put("properties", properties);
        System.out.println(JSON.toJSONString(line));
    }

    static void ck(String name, PopCheckPoint ck) {
        MessageExtBrokerInner m = broker.getPopMessageProcessor().buildCkMsg(ck, 3);
        print(name, m.getTopic(), m.getQueueId(), new String(m.getBody(), java.nio.charset.StandardCharsets.UTF_8), m.getPropertiesString());
    }

    static <T extends AckMsg> T fill(T ack, String topic, long offset) {
        ack.setConsumerGroup("g"); ack.setTopic(topic); ack.setQueueId(2); ack.setStartOffset(100);
        ack.setAckOffset(offset); ack.setPopTime(1700000000000L); ack.setBrokerName("broker-a");
        return ack;
    }

    /** As AckMessageProcessor.appendAck and PopBufferMergeService.putBatchAckToStore do. */
    static void ack(String name, AckMsg ack, boolean ofBuffer) {
        MessageExtBrokerInner m = new MessageExtBrokerInner();
        boolean batch = ack instanceof BatchAckMsg;
        m.setTags(batch ? PopAckConstants.BATCH_ACK_TAG : PopAckConstants.ACK_TAG);
        m.setDeliverTimeMs(ack.getPopTime() + 60000);
        m.getProperties().put(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, batch && ofBuffer
            ? PopMessageProcessor.genBatchAckUniqueId((BatchAckMsg) ack) : PopMessageProcessor.genAckUniqueId(ack));
        print(name, PopAckConstants.buildClusterReviveTopic("DefaultCluster"), 3, JSON.toJSONString(ack),
            MessageDecoder.messageProperties2String(m.getProperties()));
    }

    static void odd(String tag, String source, String read) {
        Map<String, Object> line = new TreeMap<>();
        line.put("tag", tag); line.put("source", source); line.put("read", read);
        System.out.println(JSON.toJSONString(line));
    }

    public static void main(String[] a) throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName("broker-a");
        config.setBrokerClusterName("DefaultCluster");
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(a[0]);
        broker = new BrokerController(config, new NettyServerConfig(), new NettyClientConfig(), store);
        long t = 1700000000000L;
        ck("ck-one", point("T", "g", 0, 0, t, 60000, 0));
        ck("ck-many", point("T", "g", 5, 1L << 40, t, 300000, 0, 1, 2, 5, 9, 31, 70000));
        ck("ck-none", point("T", "g", 0, 7, t, 60000));
        PopCheckPoint p = point("%RETRY%g_T", "g", 0, 3, t, 10000, 0, 1);
        p.setBitMap(2); p.setReviveOffset(77); p.setRePutTimes("4"); p.setSuspend(true);
        ck("ck-all", p);
        p = point("T\u00fc\"\\\u4e2d\ud83d\ude00</a>\u2028\t\u0001\u007f", "g", 0, 3, t, 10000, 0);
        ck("ck-text", p);
        p = point("T", "g", 0, 3, t, 10000, 0); p.setBrokerName(null); p.setBitMap(-1);
        ck("ck-no-broker", p);
        int[] d = new int[32]; for (int i = 0; i < 32; i++) d[i] = i;
        ck("ck-32", point("T", "g", 1, 64, t, 60000, d));
        ack("ack", fill(new AckMsg(), "T", 101), false);
        ack("ack-retry", fill(new AckMsg(), "%RETRY%g_T", 100), false);
        AckMsg none = new AckMsg(); none.setPopTime(t); ack("ack-empty", none, false);
        BatchAckMsg b = fill(new BatchAckMsg(), "T", -1);
        b.getAckOffsetList().addAll(Arrays.asList(100L, 103L, 1L << 33));
        ack("batch", b, false);
        ack("batch-of-buffer", b, true);
        ack("batch-empty", fill(new BatchAckMsg(), "T", -1), true);
        // What Java reads of odd bodies.
        String[] sources = {
            "{\"so\":\"5\",\"t\":\"T\",\"c\":\"g\",\"n\":\"2\",\"d\":[\"0\",3],\"pt\":null,\"it\":1.0,\"sp\":\"true\",\"x\":[{}],\"reviveTime\":9,\"rp\":7}",
            "{\"startOffset\":5,\"topic\":\"T\",\"cid\":\"g\",\"CId\":\"h\",\"cId\":\"i\",\"popTime\":4,\"num\":3}",
            "{}", "{\"n\":300,\"t\":5,\"c\":\"\"}", "{\"d\":null,\"n\":1}", "{\"T\":\"x\",\"C\":\"y\",\"SO\":3}", "{so:1,t:'T'}",
            "[]", "null", "", "{\"so\":1", "{\"so\":\"a\"}", "{\"so\":{}}", "{\"d\":5}", "{\"d\":[null,1]}", "{\"so\":1.9}", "{\"so\":true}", "{\"so\":9223372036854775808}"};
        for (String s : sources) {
            String out;
            try { PopCheckPoint r = JSON.parseObject(s, PopCheckPoint.class); out = r == null ? "null" : JSON.toJSONString(r); } catch (Throwable e) { out = "!" + e.getClass().getSimpleName(); }
            odd("ck", s, out);
        }
        String[] acks = {"{\"ackOffset\":1,\"startOffset\":2,\"consumerGroup\":\"g\",\"topic\":\"T\",\"queueId\":3,\"popTime\":4,\"brokerName\":\"b\",\"ackOffsetList\":[5]}", "{\"ao\":1,\"aol\":null}", "{\"aol\":[null]}", "{\"aol\":[\"6\"]}"};
        for (String s : acks) {
            String out;
            try { out = JSON.toJSONString(JSON.parseObject(s, BatchAckMsg.class)); } catch (Throwable e) { out = "!" + e.getClass().getSimpleName(); }
            odd("bAck", s, out);
        }
        System.exit(0);
    }
}
