import com.alibaba.fastjson2.JSON;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.pop.orderly.QueueLevelConsumerManager;
import org.apache.rocketmq.broker.pop.orderly.QueueLevelConsumerManager.OrderInfo;

/** Prints consumerOrderInfo.json as Java RocketMQ writes it, empty and filled, and what its rules say of a story. */
public class PopOrders {
    static void print(Object... pairs) {
        Map<String, Object> line = new TreeMap<>();
        for (int i = 0; i < pairs.length; i += 2) line.put((String) pairs[i], pairs[i + 1]);
        System.out.println(JSON.toJSONString(line));
    }

    public static void main(String[] args) throws Exception {
        QueueLevelConsumerManager manager = new QueueLevelConsumerManager();
        print("kind", "file", "name", "empty", "text", manager.encode());
        OrderInfo info = new OrderInfo("attempt", 1700000000000L, 60000L, new ArrayList<>(Arrays.asList(100L, 101L, 105L)), 1700000000001L, 2L);
        OrderInfo bare = new OrderInfo(null, 1700000000000L, 60000L, new ArrayList<>(Arrays.asList(7L)), 1700000000001L, 0L);
        info.setOffsetNextVisibleTime(new TreeMap<>(Map.of(101L, 1700000099000L)));
        info.setOffsetConsumedCount(new TreeMap<>(Map.of(100L, 2, 101L, 1)));
        ConcurrentHashMap<Integer, OrderInfo> queues = new ConcurrentHashMap<>();
        queues.put(0, info);
        queues.put(3, bare);
        ConcurrentHashMap<String, ConcurrentHashMap<Integer, OrderInfo>> table = new ConcurrentHashMap<>();
        table.put("T@g", queues);
        manager.setTable(table);
        print("kind", "file", "name", "filled", "text", manager.encode());
        long now = System.currentTimeMillis();
        manager = new QueueLevelConsumerManager();
        StringBuilder counts = new StringBuilder();
        manager.update("a1", false, "T", "g", 0, now, 60000, new ArrayList<>(Arrays.asList(10L, 11L, 15L)), counts);
        print("kind", "story", "step", "first", "counts", counts.toString());
        print("kind", "story", "step", "blocks others, not its attempt", "blocked", Arrays.asList(
            manager.checkBlock("a2", "T", "g", 0, 60000), manager.checkBlock(null, "T", "g", 0, 60000), manager.checkBlock("a1", "T", "g", 0, 60000)));
        print("kind", "story", "step", "acks", "next", Arrays.asList(
            manager.commitAndNext("T", "g", 0, 11, now), manager.commitAndNext("T", "g", 0, 10, now - 1), manager.commitAndNext("T", "g", 0, 12, now),
            manager.commitAndNext("T", "g", 0, 10, now), manager.commitAndNext("T", "g", 5, 10, now), manager.commitAndNext("T", "h", 0, 10, now)));
        manager.updateNextVisibleTime("T", "g", 0, 15, now, now - 5);
        print("kind", "story", "step", "free", "blocked", manager.checkBlock("a2", "T", "g", 0, 60000));
        counts = new StringBuilder();
        manager.update("a2", false, "T", "g", 0, now + 1, 60000, new ArrayList<>(Arrays.asList(15L, 16L)), counts);
        print("kind", "story", "step", "second", "counts", counts.toString());
        counts = new StringBuilder();
        manager.update("a2", false, "T", "g", 0, now + 2, 60000, new ArrayList<>(Arrays.asList(15L, 16L)), counts);
        print("kind", "story", "step", "same attempt", "counts", counts.toString());
        counts = new StringBuilder();
        manager.update("a3", false, "T", "g", 0, now + 3, 60000, new ArrayList<>(Arrays.asList(15L, 16L)), counts);
        print("kind", "story", "step", "third", "counts", counts.toString());
        print("kind", "story", "step", "all", "next", Arrays.asList(
            manager.commitAndNext("T", "g", 0, 15, now + 3), manager.commitAndNext("T", "g", 0, 16, now + 3)));
    }
}
