// The main calls through the client that OpenAPI Generator makes for Java.
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.AccountingApi;
import org.openapitools.client.api.ExtractApi;
import org.openapitools.client.api.ResultsApi;
import org.openapitools.client.api.SessionsApi;
import org.openapitools.client.api.ToolsApi;
import org.openapitools.client.model.*;

class MainCalls {
    static ResultsApi results;

    static ResultOut sent(String session, String content) throws ApiException {
        var result = new ResultIn().toolName("sh").content(content).sessionId(session);
        // The parameters after it are for bodies of plain text.
        return results.postResult(result, null, null, null, null, null, null, null, null, null, null, null, null, null,
            null, null, null, null, null, null, null, null, null);
    }

    public static void main(String[] arguments) throws Exception {
        var client = new ApiClient();
        client.updateBaseUri(System.getenv("SPILLGATE_URL"));
        results = new ResultsApi(client);
        var sessions = new SessionsApi(client);
        var tools = new ToolsApi(client);
        var run = System.getenv("SPILLGATE_SESSION");
        var rows = new StringBuilder("city,amount\n");
        for (int n = 0; n < 3000; n++) {
            rows.append(n % 2 == 0 ? "Oslo," : "Rome,").append(n).append('\n');
        }
        sessions.putSession(run, new SessionIn().contextWindow(131072L));
        var passed = sent(run, "fits");
        var stored = sent(run, rows.toString());
        var handle = stored.getHandle();
        var checked = results.postCheck(new CheckIn().toolName("sh").bytes(481213L).sessionId(run));
        var answer = new ExtractApi(client).postExtract(new ExtractIn().handle(handle).extract("Oslo,1234"));
        var lines = results.getLines(handle, 3L, 1L, null, null);
        var found = results.getGrep(handle, "^Rome,29..$", null, null, null, null, null, null, null);
        var queried = results.getQuery(handle, "SELECT count(*) AS n FROM data", null, null, null);
        sessions.reportUsage(run, new UsageIn().usedTokens(52000L).turn(8L));
        var offered = tools.getTools(run, ToolFormat.TOOL_FORMAT_MCP, null);
        var asked = Map.of("handle", handle, "lines", "2");
        var called = tools.postToolCall(new ToolCallIn().name("tool_output").arguments(asked).sessionId(run));
        var session = sessions.getSession(run);
        var summary = new AccountingApi(client)
            .getSummary(null, run, null, null, null, null, null, null, null, null, "type");
        String code = null;
        try {
            results.getStored("session-default/file-0");
        } catch (ApiException refused) {
            code = new ObjectMapper().readTree(refused.getResponseBody()).get("code").asText();
        }
        var said = new LinkedHashMap<String, Object>();
        said.put("passed", passed.getContent());
        said.put("outcome", stored.getOutcome().getValue());
        said.put("bytes", stored.getMeasure().getBytes());
        said.put("allowed", checked.getAllowed());
        said.put("answered", answer.getText().contains("Oslo,1234"));
        said.put("line", lines.getLines().get(0).getText());
        said.put("matches", found.getTotalMatches());
        said.put("result", queried.getResult());
        said.put("used", session.getBudget().getUsedTokens());
        said.put("offered", offered.getTools().get(0).get("name"));
        said.put("tool", called.getText().split("\n")[0]);
        said.put("stored", session.getStoredResults());
        said.put("entries", summary.getTotal().getEntries());
        said.put("code", code);
        System.out.println(new ObjectMapper().writeValueAsString(said));
    }
}
