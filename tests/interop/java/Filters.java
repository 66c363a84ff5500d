import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** What Java's own SQL92 filter says: of each expression and properties T, F, N, E, or X if it does not parse. */
final class Filters {
    private Filters() {
    }

    static String evaluate(JSONObject request) {
        StringBuilder answers = new StringBuilder();
        JSONArray cases = request.getJSONArray("cases");
        for (int i = 0; i < cases.size(); i++) {
            JSONObject one = cases.getJSONObject(i);
            answers.append(verdict(one.getString("expression"), one.getJSONObject("properties")));
        }
        return answers.toString();
    }

    private static char verdict(String text, JSONObject given) {
        Expression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (Throwable error) {
            return 'X';
        }
        Map<String, String> properties = new HashMap<>();
        for (String name : given.keySet()) {
            properties.put(name, given.getString(name));
        }
        try {
            Object result = expression.evaluate(new MessageEvaluationContext(properties));
            return result == null ? 'N' : Boolean.TRUE.equals(result) ? 'T' : Boolean.FALSE.equals(result) ? 'F' : 'O';
        } catch (Throwable error) {
            return 'E';
        }
    }
}
