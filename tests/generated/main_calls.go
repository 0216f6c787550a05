// The main calls through the client that OpenAPI Generator makes for Go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	spillgate "github.com/GIT_USER_ID/GIT_REPO_ID"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func text(content string) spillgate.Content {
	return spillgate.Content{String: &content}
}

func main() {
	configuration := spillgate.NewConfiguration()
	configuration.Servers = spillgate.ServerConfigurations{{URL: os.Getenv("SPILLGATE_URL")}}
	client, all, run := spillgate.NewAPIClient(configuration), context.Background(), os.Getenv("SPILLGATE_SESSION")
	rows := "city,amount\n"
	for n := 0; n < 3000; n++ {
		rows += fmt.Sprintf("%s,%d\n", []string{"Oslo", "Rome"}[n%2], n)
	}
	opened := spillgate.NewSessionIn()
	opened.SetContextWindow(131072)
	_, _, err := client.SessionsAPI.PutSession(all, run).SessionIn(*opened).Execute()
	check(err)
	sent := spillgate.NewResultIn("sh", text("fits"))
	sent.SetSessionId(run)
	sent.SetToolArguments(spillgate.ToolArguments{MapmapOfStringAny: &map[string]interface{}{"command": "ls"}})
	passed, _, err := client.ResultsAPI.PostResult(all).ResultIn(*sent).Execute()
	check(err)
	sent.SetContent(text(rows))
	stored, _, err := client.ResultsAPI.PostResult(all).ResultIn(*sent).Execute()
	check(err)
	handle := stored.GetHandle()
	size := spillgate.NewCheckIn("sh")
	size.SetBytes(481213)
	size.SetSessionId(run)
	checked, _, err := client.ResultsAPI.PostCheck(all).CheckIn(*size).Execute()
	check(err)
	question := spillgate.NewExtractIn(handle, "Oslo,1234")
	answer, _, err := client.ExtractAPI.PostExtract(all).ExtractIn(*question).Execute()
	check(err)
	lines, _, err := client.ResultsAPI.GetLines(all, handle).Offset(3).Limit(1).Execute()
	check(err)
	found, _, err := client.ResultsAPI.GetGrep(all, handle).Pattern("^Rome,29..$").Execute()
	check(err)
	queried, _, err := client.ResultsAPI.GetQuery(all, handle).Expression("SELECT count(*) AS n FROM data").Execute()
	check(err)
	usage := spillgate.NewUsageIn(52000)
	usage.SetTurn(8)
	_, _, err = client.SessionsAPI.ReportUsage(all, run).UsageIn(*usage).Execute()
	check(err)
	offered, _, err := client.ToolsAPI.GetTools(all).SessionId(run).Format(spillgate.TOOL_FORMAT_MCP).Execute()
	check(err)
	call := spillgate.NewToolCallIn("tool_output")
	call.SetSessionId(run)
	call.SetArguments(map[string]string{"handle": handle, "lines": "2"})
	called, _, err := client.ToolsAPI.PostToolCall(all).ToolCallIn(*call).Execute()
	check(err)
	session, _, err := client.SessionsAPI.GetSession(all, run).Execute()
	check(err)
	summary, _, err := client.AccountingAPI.GetSummary(all).SessionId(run).GroupBy("type").Execute()
	check(err)
	_, _, err = client.ResultsAPI.GetStored(all, "session-default/file-0").Execute()
	var refused *spillgate.GenericOpenAPIError
	if !errors.As(err, &refused) {
		panic("an unknown handle was found")
	}
	said, err := json.Marshal(map[string]interface{}{
		"passed":   *passed.Content.String,
		"outcome":  stored.GetOutcome(),
		"bytes":    stored.Measure.GetBytes(),
		"allowed":  checked.GetAllowed(),
		"answered": strings.Contains(answer.GetText(), "Oslo,1234"),
		"line":     lines.GetLines()[0].GetText(),
		"matches":  found.GetTotalMatches(),
		"result":   queried.GetResult(),
		"used":     session.Budget.GetUsedTokens(),
		"offered":  offered.GetTools()[0]["name"],
		"tool":     strings.Split(called.GetText(), "\n")[0],
		"stored":   session.GetStoredResults(),
		"entries":  summary.Total.GetEntries(),
		"code":     refused.Model().(spillgate.Problem).Code,
	})
	check(err)
	fmt.Println(string(said))
}
