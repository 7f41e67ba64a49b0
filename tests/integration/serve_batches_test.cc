// /v1/files and /v1/batches of the running program, also when it is killed.

#include <algorithm>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/sanitized_testing.h"
#include "integration/program.h"
#include "integration/serving.h"
#include "integration/support.h"
#include "io/file.h"

namespace nunspark::test {
namespace {

using namespace std::chrono_literals;

std::string Form(const std::string& content, const std::string& purpose = "batch", const std::string& more = "") {
  return "--Bound\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n" + purpose + "\r\n" + more +
         "--Bound\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../in.jsonl\"\r\nContent-Type: "
         "application/octet-stream\r\n\r\n" +
         content + "\r\n--Bound--\r\n";
}

std::string FormHead(size_t bytes, const std::string& headers) {
  return "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=Bound\r\n" +
         headers + "Content-Length: " + std::to_string(bytes) + "\r\n\r\n";
}

Reply PostForm(const Server& server, const std::string& body, const std::string& headers = "") {
  Connection connection(server.port());
  EXPECT_TRUE(connection.Send(FormHead(body.size(), headers) + body));
  return connection.ReadReply();
}

std::string Upload(const Server& server, const std::string& content) {
  const Reply reply = PostForm(server, Form(content));
  EXPECT_EQ(reply.status, 200) << reply.body;
  return MemberOf(reply.json(), {"id"}).as_string();
}

Json CreateBatch(const Server& server, const std::string& file, const std::string& window = "24h",
                 const std::string& endpoint = "/v1/chat/completions") {
  const Reply reply = server.Post("/v1/batches", Json(Json::Object{{"input_file_id", file},
                                                                   {"endpoint", endpoint},
                                                                   {"completion_window", window},
                                                                   {"metadata", Json::Object{{"name", "test"}}}}));
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.json();
}

Json BatchOf(const Server& server, const std::string& id) {
  const Reply reply = server.Ask("GET", "/v1/batches/" + id);
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.json();
}

std::string StatusOf(const Json& batch) { return MemberOf(batch, {"status"}).as_string(); }

// Waits until it has ended.
Json AwaitEnd(const Server& server, const std::string& id) {
  Json batch;
  EXPECT_TRUE(Eventually([&] {
    batch = BatchOf(server, id);
    const std::string status = StatusOf(batch);
    return status != "validating" && status != "in_progress" && status != "finalizing" && status != "cancelling";
  })) << WriteJson(batch);
  return batch;
}

std::string Content(const Server& server, const Json& batch, const char* which) {
  const Json* const id = batch.Find(which);
  if (id == nullptr || !id->is_string()) return "";
  const Reply reply = server.Ask("GET", "/v1/files/" + id->as_string() + "/content");
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.body;
}

std::vector<Json> LinesOf(const std::string& text) {
  std::vector<Json> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_NE(end, std::string::npos);
    if (end == std::string::npos) break;
    const Result<Json> json = ParseJson(text.substr(at, end - at), "line");
    EXPECT_TRUE(json.ok()) << text.substr(at, end - at);
    if (json.ok()) lines.push_back(*json);
    at = end + 1;
  }
  return lines;
}

std::string IdOf(const Json& line) { return MemberOf(line, {"custom_id"}).as_string(); }

std::string Line(const std::string& id, const std::string& body) {
  return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": "/v1/chat/completions", "body": )" + body + "}\n";
}

std::string ChatBody(int seed, int max_tokens) {
  return R"({"messages": [{"role": "user", "content": "Tell me story number )" + std::to_string(seed) +
         R"("}], "temperature": 0.8, "seed": )" + std::to_string(seed) + R"(, "max_tokens": )" +
         std::to_string(max_tokens) + "}";
}

std::string Input(int lines, int max_tokens) {
  std::string input;
  for (int i = 0; i < lines; ++i) input += Line("line " + std::to_string(i), ChatBody(i, max_tokens));
  return input;
}

// Without what names a run and not its content.
std::string Masked(const std::string& output) {
  std::string text;
  for (Json line : LinesOf(output)) {
    Json response = MemberOf(line, {"response"});
    Json body = MemberOf(response, {"body"});
    for (const char* const name : {"id", "created"}) body.Set(name, Json());
    response.Set("request_id", Json());
    response.Set("body", std::move(body));
    line.Set("id", Json());
    line.Set("response", std::move(response));
    text += WriteJson(line) + "\n";
  }
  return text;
}

TEST(ServeBatches, FilesAreKeptGivenBackAndDeleted) {
  const TempFolder temp;
  const std::string data = temp.path() + "/data";
  std::string id;
  // More than what is read and written at once, and bytes of every kind.
  std::string content;
  for (int i = 0; i < 300000; ++i) content += static_cast<char>((i * 7 + i / 251) & 0xFF);
  {
    Server server("--data-dir " + data);
    const Reply reply = PostForm(server, Form(content));
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json file = reply.json();
    id = MemberOf(file, {"id"}).as_string();
    EXPECT_TRUE(id.starts_with("file-"));
    EXPECT_EQ(MemberOf(file, {"object"}).as_string(), "file");
    EXPECT_EQ(MemberOf(file, {"bytes"}).as_int(), std::ssize(content));
    EXPECT_EQ(MemberOf(file, {"filename"}).as_string(), "in.jsonl");
    EXPECT_EQ(MemberOf(file, {"purpose"}).as_string(), "batch");
    EXPECT_EQ(MemberOf(file, {"status"}).as_string(), "processed");
    ExpectError(Nunspark("serve " + Demo() + " --port 0 --data-dir " + data),
                {data.c_str(), "in use by process", std::to_string(server.pid()).c_str()});

    EXPECT_EQ(PostForm(server, Form("x", "vision")).status, 400);
    EXPECT_EQ(PostForm(server, "--Bound\r\n").status, 400);
    EXPECT_EQ(PostForm(server, "").status, 400);
    EXPECT_EQ(server.Ask("POST", "/v1/files", "{}").status, 400);
    EXPECT_EQ(server.Ask("PUT", "/v1/files", "{}").status, 405);
    EXPECT_EQ(server.Ask("POST", "/v1/files/", "{}").status, 405);
    const Reply expiring = PostForm(
        server, Form("x", "batch",
                     "--Bound\r\nContent-Disposition: form-data; name=\"expires_after[anchor]\"\r\n\r\ncreated_at\r\n"
                     "--Bound\r\nContent-Disposition: form-data; name=\"expires_after[seconds]\"\r\n\r\n3600\r\n"));
    ASSERT_EQ(expiring.status, 200) << expiring.body;
    EXPECT_EQ(MemberOf(expiring.json(), {"expires_at"}).as_int(),
              MemberOf(expiring.json(), {"created_at"}).as_int() + 3600);
    for (const char* const path :
         {"/v1/files/none", "/v1/files/..%2Fbatches.db/content", "/v1/files/%2e%2e/content", "/v1/files/../lock",
          "/v1/files//content", "/v1/files/none/other", "/v1/batches/none", "/v1/batches/none/content"}) {
      EXPECT_EQ(server.Ask("GET", path).status, 404) << path;
    }
    EXPECT_EQ(server.Ask("DELETE", "/v1/files/..%2Fbatches.db").status, 404);
    EXPECT_EQ(server.Stop(SIGTERM), 0);
  }
  const Server server("--data-dir " + data);
  EXPECT_EQ(MemberOf(server.Ask("GET", "/v1/files?purpose=batch").json(), {"data"}).as_array().size(), 2u);
  const Json page = server.Ask("GET", "/v1/files?limit=1&order=asc").json();
  EXPECT_EQ(MemberOf(page, {"first_id"}).as_string(), id);
  EXPECT_TRUE(MemberOf(page, {"has_more"}).as_bool());
  EXPECT_FALSE(MemberOf(server.Ask("GET", "/v1/files?after=" + id + "&order=asc").json(), {"has_more"}).as_bool());
  EXPECT_EQ(server.Ask("GET", "/v1/files?limit=x").status, 400);
  EXPECT_EQ(server.Ask("GET", "/v1/files/" + id + "/content").body, content);
  EXPECT_EQ(server.Ask("HEAD", "/v1/files/" + id + "/content").headers.at("content-length"),
            std::to_string(content.size()));
  EXPECT_TRUE(MemberOf(server.Ask("DELETE", "/v1/files/" + id).json(), {"deleted"}).as_bool());
  EXPECT_EQ(server.Ask("GET", "/v1/files/" + id).status, 404);
  EXPECT_FALSE(FileExists(data + "/files/" + id));
}

TEST(ServeBatches, UploadsHaveTheirOwnLimitAndNeedAKey) {
  const TempFolder temp;
  std::ofstream(temp.path() + "/keys") << "secret\n";
  const Server server("--data-dir " + temp.path() + "/data --max-upload 40MB --api-key-file " + temp.path() + "/keys");
  const std::string key = "Authorization: Bearer secret\r\n";
  const std::string large(38 << 20, 'x');
  EXPECT_EQ(PostForm(server, Form(large), key).status, 200);
  EXPECT_EQ(PostForm(server, Form("x")).status, 401);
  const auto status_by_head = [&](size_t bytes, const std::string& headers) {
    Connection connection(server.port());
    EXPECT_TRUE(connection.Send(FormHead(bytes, headers)));
    return connection.ReadReply().status;
  };
  EXPECT_EQ(status_by_head(large.size(), ""), 413);
  EXPECT_EQ(status_by_head((40 << 20), key), 413);
  // What did not become a file is gone.
  EXPECT_EQ(ListFolder(temp.path() + "/data/files").value().size(), 1u);
}

TEST(ServeBatches, AreRefusedWithoutAFolder) {
  const Server server;
  for (const char* const path : {"/v1/files", "/v1/batches", "/v1/batches/x/cancel"}) {
    const Reply reply = server.Ask("POST", path, "{}");
    EXPECT_EQ(reply.status, 501);
    EXPECT_NE(reply.body.find("--data-dir"), std::string::npos) << reply.body;
  }
}

TEST(ServeBatches, AnswerAsTheRoutesDoInTheOrderOfTheInput) {
  const TempFolder temp;
  const Server server("--no-prefix-cache --data-dir " + temp.path());
  std::string input = Input(12, 20);
  input += Line("other model", R"({"model": "none", "messages": [{"role": "user", "content": "x"}]})");
  input += "\n  \n" + Line("streamed", R"({"stream": true, "messages": [{"role": "user", "content": "x"}]})");
  input += Line("no messages", "{}");
  input.pop_back();
  const std::string file = Upload(server, input);
  const Json made = CreateBatch(server, file);
  EXPECT_EQ(StatusOf(made), "validating");
  EXPECT_EQ(MemberOf(made, {"object"}).as_string(), "batch");
  EXPECT_EQ(MemberOf(made, {"metadata", "name"}).as_string(), "test");
  EXPECT_EQ(MemberOf(made, {"expires_at"}).as_int(), MemberOf(made, {"created_at"}).as_int() + 86400);
  const Json batch = AwaitEnd(server, MemberOf(made, {"id"}).as_string());
  EXPECT_EQ(StatusOf(batch), "completed") << WriteJson(batch);
  EXPECT_EQ(MemberOf(batch, {"request_counts", "total"}).as_int(), 15);
  EXPECT_EQ(MemberOf(batch, {"request_counts", "completed"}).as_int(), 12);
  EXPECT_EQ(MemberOf(batch, {"request_counts", "failed"}).as_int(), 3);
  for (const char* const time : {"in_progress_at", "finalizing_at", "completed_at"}) {
    EXPECT_TRUE(MemberOf(batch, {time}).is_int()) << time;
  }
  const std::vector<Json> output = LinesOf(Content(server, batch, "output_file_id"));
  ASSERT_EQ(output.size(), 12u);
  for (int i = 0; i < 12; ++i) {
    const Json& line = output[static_cast<size_t>(i)];
    EXPECT_EQ(IdOf(line), "line " + std::to_string(i));
    EXPECT_TRUE(MemberOf(line, {"error"}).is_null());
    EXPECT_EQ(MemberOf(line, {"response", "status_code"}).as_int(), 200);
    Json alone = server.Ask("POST", "/v1/chat/completions", ChatBody(i, 20)).json();
    Json body = MemberOf(line, {"response", "body"});
    for (Json* const json : {&alone, &body}) {
      for (const char* const name : {"id", "created"}) json->Set(name, Json());
    }
    EXPECT_EQ(WriteJson(body), WriteJson(alone));
  }
  const std::vector<Json> errors = LinesOf(Content(server, batch, "error_file_id"));
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(IdOf(errors[0]), "other model");
  EXPECT_EQ(MemberOf(errors[0], {"response", "status_code"}).as_int(), 404);
  EXPECT_EQ(MemberOf(errors[0], {"response", "body", "error", "code"}).as_string(), "model_not_found");
  EXPECT_EQ(MemberOf(errors[1], {"response", "status_code"}).as_int(), 400);
  EXPECT_EQ(MemberOf(errors[2], {"response", "status_code"}).as_int(), 400);
  EXPECT_EQ(server.Metric("batch_lines_completed_total"), 12);
  EXPECT_EQ(server.Metric("batch_lines_failed_total"), 3);
  const std::string output_id = MemberOf(batch, {"output_file_id"}).as_string();
  EXPECT_EQ(MemberOf(server.Ask("GET", "/v1/files/" + output_id).json(), {"purpose"}).as_string(), "batch_output");
  EXPECT_EQ(server.Ask("POST", "/v1/batches/" + MemberOf(made, {"id"}).as_string() + "/cancel").status, 409);
  EXPECT_EQ(server.Ask("DELETE", "/v1/files/" + file).status, 200);
}

TEST(ServeBatches, InputsThatBreakARuleFailWithCodeAndLine) {
  const TempFolder temp;
  const Server server("--data-dir " + temp.path());
  const std::string good = Line("a", "{}");
  const auto errors_of = [&](const std::string& input) {
    const Json batch = AwaitEnd(server, MemberOf(CreateBatch(server, Upload(server, input)), {"id"}).as_string());
    EXPECT_EQ(StatusOf(batch), "failed");
    EXPECT_TRUE(MemberOf(batch, {"output_file_id"}).is_null());
    std::string text;
    const Json errors = MemberOf(batch, {"errors", "data"});
    for (const Json& error : errors.as_array()) {
      text += error.Find("code")->as_string() + ":" + WriteJson(*error.Find("line")) + " ";
    }
    return text;
  };
  EXPECT_EQ(errors_of(""), "empty_file:null ");
  EXPECT_EQ(errors_of("\n\n"), "empty_file:null ");
  EXPECT_EQ(errors_of(good + "{\n" + good + Line("b", "[]")),
            "invalid_json_line:2 duplicate_custom_id:3 invalid_value:4 ");
  EXPECT_EQ(errors_of(std::string(5000, '\0')), "invalid_json_line:1 ");
  std::string many;
  for (int i = 0; i < 50001; ++i) many += Line(std::to_string(i), "{}");
  EXPECT_EQ(errors_of(many), "too_many_tasks:null ");

  const auto refuse = [&](const std::string& body, const std::string& part) {
    const Reply reply = server.Ask("POST", "/v1/batches", body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_NE(reply.body.find(part), std::string::npos) << reply.body;
  };
  const std::string file = Upload(server, good);
  const std::string rest = R"(", "endpoint": "/v1/completions", "completion_window": "24h")";
  refuse("{", "JSON");
  refuse("{}", "input_file_id");
  refuse(R"({"input_file_id": "none)" + rest + "}", "there is no file none");
  refuse(R"({"input_file_id": "../batches.db)" + rest + "}", "there is no file");
  refuse(R"({"input_file_id": ")" + file + R"(", "endpoint": "/v1/models", "completion_window": "24h"})", "endpoint");
  refuse(R"({"input_file_id": ")" + file + R"(", "endpoint": "/v1/completions", "completion_window": "soon"})",
         "completion_window");
  refuse(R"({"input_file_id": ")" + file + rest + R"(, "metadata": {"a": 1}})", "metadata");
  EXPECT_EQ(server.Ask("POST", "/v1/batches/none/cancel").status, 404);
  EXPECT_EQ(server.Ask("GET", "/v1/batches?limit=101").status, 400);
  const Json page = server.Ask("GET", "/v1/batches?limit=2").json();
  EXPECT_EQ(MemberOf(page, {"data"}).as_array().size(), 2u);
  EXPECT_TRUE(MemberOf(page, {"has_more"}).as_bool());
  const Json rest_of = server.Ask("GET", "/v1/batches?after=" + MemberOf(page, {"last_id"}).as_string()).json();
  EXPECT_EQ(MemberOf(rest_of, {"data"}).as_array().size(), 3u);
}

// Every line of the input once, in one of the two files; those not run with `code`.
void ExpectEachLineOnce(const Server& server, const Json& batch, int lines, const std::string& code) {
  std::multiset<std::string> ids;
  const std::vector<Json> output = LinesOf(Content(server, batch, "output_file_id"));
  for (const Json& line : output) ids.insert(IdOf(line));
  EXPECT_EQ(std::ssize(output), MemberOf(batch, {"request_counts", "completed"}).as_int());
  for (const Json& line : LinesOf(Content(server, batch, "error_file_id"))) {
    ids.insert(IdOf(line));
    EXPECT_TRUE(MemberOf(line, {"response"}).is_null());
    EXPECT_EQ(MemberOf(line, {"error", "code"}).as_string(), code);
  }
  EXPECT_EQ(std::ssize(ids), lines);
  for (int i = 0; i < lines; ++i) EXPECT_EQ(ids.count("line " + std::to_string(i)), 1u) << i;
}

TEST(ServeBatches, EndEarlyWithWhatHasRun) {
  const TempFolder temp;
  const Server server("--parallel 2 --data-dir " + temp.path());
  const std::string file = Upload(server, Input(2000, 200));
  const std::string late = MemberOf(CreateBatch(server, file, "1s"), {"id"}).as_string();
  const std::string id = MemberOf(CreateBatch(server, file), {"id"}).as_string();
  EXPECT_EQ(server.Ask("DELETE", "/v1/files/" + file).status, 409);
  const Json expired = AwaitEnd(server, late);
  EXPECT_EQ(StatusOf(expired), "expired");
  EXPECT_TRUE(MemberOf(expired, {"expired_at"}).is_int());
  if (!MemberOf(expired, {"in_progress_at"}).is_null()) ExpectEachLineOnce(server, expired, 2000, "batch_expired");
  ASSERT_TRUE(Eventually([&] { return MemberOf(BatchOf(server, id), {"request_counts", "completed"}).as_int() >= 3; }));
  EXPECT_EQ(StatusOf(server.Ask("POST", "/v1/batches/" + id + "/cancel").json()), "cancelling");
  const Json cancelled = AwaitEnd(server, id);
  EXPECT_EQ(StatusOf(cancelled), "cancelled");
  EXPECT_TRUE(MemberOf(cancelled, {"cancelling_at"}).is_int());
  ExpectEachLineOnce(server, cancelled, 2000, "batch_cancelled");
  EXPECT_EQ(server.Ask("POST", "/v1/batches/" + id + "/cancel").status, 200);
}

TEST(ServeBatches, LinesGiveWayToOtherRequests) {
  const TempFolder temp;
  Server server("--no-prefix-cache --parallel 1 --data-dir " + temp.path());
#ifdef NUNSPARK_SANITIZED
  constexpr int kTokens = 40;
#else
  constexpr int kTokens = 600;
#endif
  const std::string id = MemberOf(CreateBatch(server, Upload(server, Input(6, kTokens))), {"id"}).as_string();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Eventually(
        [&] { return server.Metric("batch_sequences_running") > 0 || StatusOf(BatchOf(server, id)) == "completed"; }));
    EXPECT_EQ(server.Ask("POST", "/v1/chat/completions", ChatBody(100 + i, 5)).status, 200);
  }
  EXPECT_GE(server.Metric("batch_lines_withdrawn_total"), 1);
  // Stopping is nothing that a batch notices either.
  EXPECT_EQ(server.Stop(SIGTERM), 0);
  const Server again("--no-prefix-cache --data-dir " + temp.path());
  const Json batch = AwaitEnd(again, id);
  EXPECT_EQ(StatusOf(batch), "completed");
  const std::vector<Json> output = LinesOf(Content(again, batch, "output_file_id"));
  ASSERT_EQ(output.size(), 6u);
  for (int i = 0; i < 6; ++i) {
    const Json alone = again.Ask("POST", "/v1/chat/completions", ChatBody(i, kTokens)).json();
    EXPECT_EQ(MemberOf(output[static_cast<size_t>(i)], {"response", "body", "choices"}), MemberOf(alone, {"choices"}));
  }
}

TEST(ServeBatches, AFullDiskDelaysThemAndLosesNothing) {
  constexpr int kLines = 60;
  const TempFolder temp;
  std::string ignored;
  if (RunShell("mount -t tmpfs -o size=4m tmpfs " + temp.path(), &ignored, &ignored) != 0) {
    GTEST_SKIP() << "needs the right to mount a small file system";
  }
  {
    const Server server("--no-prefix-cache --data-dir " + temp.path() + "/data");
    const std::string file = Upload(server, Input(kLines, 40));
    const std::string id = MemberOf(CreateBatch(server, file), {"id"}).as_string();
    EXPECT_NE(RunShell("dd if=/dev/zero bs=4k of=" + temp.path() + "/fill", &ignored, &ignored), 0);
    ASSERT_TRUE(Eventually([&] { return server.Log().find("no space is left") != std::string::npos; }));
    EXPECT_EQ(PostForm(server, Form(std::string(100000, 'x'))).status, 507);
    EXPECT_EQ(server.Ask("POST", "/v1/chat/completions", ChatBody(1, 4)).status, 200);
    EXPECT_NE(StatusOf(BatchOf(server, id)), "completed");
    EXPECT_EQ(RunShell("rm " + temp.path() + "/fill", &ignored), 0);
    const Json batch = AwaitEnd(server, id);
    EXPECT_EQ(StatusOf(batch), "completed");
    const std::vector<Json> lines = LinesOf(Content(server, batch, "output_file_id"));
    ASSERT_EQ(lines.size(), static_cast<size_t>(kLines));
    for (int i = 0; i < kLines; ++i) EXPECT_EQ(IdOf(lines[static_cast<size_t>(i)]), "line " + std::to_string(i));
  }
  EXPECT_EQ(RunShell("umount " + temp.path(), &ignored), 0);
}

TEST(ServeBatches, SlowKilledAtAnyMomentLosesAndRepeatsNothing) {
  constexpr int kKills = 50, kLines = 60;
  const TempFolder temp;
  const std::string flags = "--no-prefix-cache --data-dir " + temp.path();
  const std::string input = Input(kLines, 60);
  std::string want;
  std::string file;
  {
    const Server server(flags);
    file = Upload(server, input);
    const Json batch = AwaitEnd(server, MemberOf(CreateBatch(server, file), {"id"}).as_string());
    want = Masked(Content(server, batch, "output_file_id"));
    ASSERT_EQ(std::count(want.begin(), want.end(), '\n'), kLines);
  }
  std::mt19937 random(20);
  std::string id;
  int finished = 0, interrupted = 0;
  const auto check = [&](const Server& server, const Json& batch) {
    EXPECT_EQ(StatusOf(batch), "completed");
    EXPECT_EQ(MemberOf(batch, {"request_counts", "completed"}).as_int(), kLines);
    EXPECT_TRUE(MemberOf(batch, {"error_file_id"}).is_null());
    EXPECT_EQ(Masked(Content(server, batch, "output_file_id")), want);
    ++finished;
  };
  for (int kill = 0; kill < kKills; ++kill) {
    Server server(flags);
    const Json batch = id.empty() ? Json() : BatchOf(server, id);
    if (id.empty() || StatusOf(batch) == "completed") {
      if (!id.empty()) check(server, batch);
      id = MemberOf(CreateBatch(server, file), {"id"}).as_string();
    }
    interrupted += !batch.is_null() && StatusOf(batch) == "in_progress";
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 150000));
    EXPECT_EQ(server.Stop(SIGKILL), -1);
  }
  const Server server(flags);
  check(server, AwaitEnd(server, id));
  EXPECT_GT(interrupted, 0);
  RecordProperty("interrupted", interrupted);
  // The input and each batch's output: nothing else is left.
  EXPECT_EQ(std::ssize(ListFolder(temp.path() + "/files").value()), finished + 2);
}

}  // namespace
}  // namespace nunspark::test
