import com.alibaba.fastjson2.JSON;
import java.util.*;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.*;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Prints which queues Java RocketMQ's broker gives to members: one JSON line for each case. */
public class PopShares {
    public static void main(String[] a) throws Exception {
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(a[0]);
        BrokerController broker = new BrokerController(new BrokerConfig(), new NettyServerConfig(), new NettyClientConfig(), store);
        AllocateMessageQueueStrategy[] strategies = {new AllocateMessageQueueAveragely(), new AllocateMessageQueueAveragelyByCircle()};
        for (AllocateMessageQueueStrategy strategy : strategies)
            for (int queues : new int[] {1, 2, 5, 8})
                for (int members : new int[] {1, 2, 3, 7, 9})
                    for (int share : new int[] {-2, -1, 0, 1, 2, 6})
                        for (int me = 0; me <= members; me += Math.max(1, members / 2)) {
                            List<MessageQueue> all = new ArrayList<>();
                            for (int i = 0; i < queues; i++) all.add(new MessageQueue("T", i % 2 == 0 ? "a" : "b", i / 2));
                            Collections.sort(all);
                            List<String> ids = new ArrayList<>();
                            for (int i = 0; i < members; i++) ids.add("c" + i);
                            List<MessageQueue> got = share == -2 ? strategy.allocate("g", "c" + me, all, ids)
                                : broker.getQueryAssignmentProcessor().allocate4Pop(strategy, "g", "c" + me, all, ids, share);
                            List<String> shown = new ArrayList<>();
                            for (MessageQueue q : new TreeSet<>(got)) shown.add(q.getBrokerName() + q.getQueueId());
                            Map<String, Object> line = new TreeMap<>();
                            line.put("strategy", strategy.getName()); line.put("queues", queues); line.put("members", members);
                            line.put("share", share); line.put("me", me); line.put("got", shown);
                            System.out.println(JSON.toJSONString(line));
                        }
        System.exit(0);
    }
}
