// nunspark web, as a browser sees it: over sockets, against the running program and the demo model.

#include <algorithm>
#include <filesystem>
#include <random>

#include "integration/serving.h"

namespace nunspark::test {
namespace {

namespace fs = std::filesystem;

// Tokens that take a moment, and no more than that.
#ifdef NUNSPARK_SANITIZED
constexpr int kLongAnswer = 60;
#else
constexpr int kLongAnswer = 900;
#endif

// The demo model, packed once for all tests of this process.
const std::string& PackedRoot() {
  static const TempFolder folder;
  static const std::string root = [] {
    const std::string path = folder.path() + "/packed";
    fs::create_directories(path + "/no-model");
    EXPECT_EQ(Nunspark("pack " + Demo() + " " + path + "/demo").code, 0);
    return path;
  }();
  return root;
}

class Web : public Listener {
 public:
  explicit Web(std::string flags = "", std::string environment = "")
      : flags_(std::move(flags)), environment_(std::move(environment)) {
    Start();
  }

  void Start() {
    Launch("env HF_HUB_CACHE=" + Path("hub") + " " + environment_ + " " + kBinary + " web --packed-root " +
           PackedRoot() + " --state-dir " + Path("state") + " --port 0 " + flags_);
  }

  std::string Upload(const std::string& name, const std::string& content) const {
    const std::string body = "--X\r\nContent-Disposition: form-data; name=\"files\"; filename=\"" + name +
                             "\"\r\n\r\n" + content + "\r\n--X--\r\n";
    Connection connection(port());
    EXPECT_TRUE(
        connection.Send("POST /api/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; "
                        "boundary=X\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body));
    const Reply reply = connection.ReadReply();
    EXPECT_EQ(reply.status, 200) << reply.body;
    return MemberOf(reply.json(), {"files"}).as_array().at(0).Find("id")->as_string();
  }
  Json Body(const std::vector<std::string>& ids, int64_t max_tokens) const {
    return Json::Object{{"model", PackedRoot() + "/demo"},
                        {"instruction", "Tell me a story about this."},
                        {"max_tokens", max_tokens},
                        {"output_dir", Path("out")},
                        {"file_ids", Json::Array(ids.begin(), ids.end())}};
  }
  // Ids of a batch of such files.
  std::vector<std::string> Batch(const std::vector<std::string>& contents, int64_t max_tokens) const {
    std::vector<std::string> ids, jobs;
    for (size_t i = 0; i < contents.size(); ++i) ids.push_back(Upload("f" + std::to_string(i) + ".txt", contents[i]));
    const Reply reply = Post("/api/batch", Body(ids, max_tokens));
    EXPECT_EQ(reply.status, 200) << reply.body;
    const Json list = MemberOf(reply.json(), {"jobs"});
    for (const Json& job : list.as_array()) jobs.push_back(job.Find("id")->as_string());
    return jobs;
  }
  Json Jobs() const { return MemberOf(Ask("GET", "/api/jobs").json(), {"jobs"}); }
  Json Job(const std::string& id) const {
    const Json jobs = Jobs();
    for (const Json& job : jobs.as_array()) {
      if (job.Find("id")->as_string() == id) return job;
    }
    ADD_FAILURE() << "no job " << id;
    return Json(Json::Object{{"status", "lost"}});
  }
  std::string StatusOf(const std::string& id) const { return Job(id).Find("status")->as_string(); }
  // To its last event.
  std::vector<Json> Events(const std::string& id) const {
    std::vector<Json> events;
    for (const std::string& data : EventsOf(Ask("GET", "/api/jobs/" + id + "/events").body)) {
      events.push_back(ParseJson(data, "event").value());
    }
    return events;
  }
  std::string File(const std::string& name) const {
    const Result<std::string> text = ReadWholeFile(Path("out/" + name));
    return text.ok() ? *text : "(" + text.status().message() + ")";
  }

 private:
  const std::string flags_, environment_;
};

// What `generate` says to the prompt of such a job.
std::string Expected(const std::string& content, int64_t max_tokens) {
  return AloneText("Tell me a story about this.\n\n" + content, "--max-tokens " + std::to_string(max_tokens));
}

// Checklist item 78.
TEST(Web, ListsPacksWithWhatTheyNeedOfThisMachine) {
  const Web web;
  Json models;
  for (int i = 0; i < 500; ++i) {
    models = MemberOf(web.Ask("GET", "/api/models").json(), {"models"});
    ASSERT_EQ(models.as_array().size(), 1u);
    if (!models.as_array()[0].Find("badge")->is_null()) break;
    std::this_thread::sleep_for(20ms);
  }
  const Json& model = models.as_array()[0];
  EXPECT_EQ(model.Find("kind")->as_string(), "packed");
  EXPECT_EQ(model.Find("name")->as_string(), "demo");
  EXPECT_EQ(model.Find("path")->as_string(), PackedRoot() + "/demo");
  EXPECT_GT(model.Find("size")->as_int(), 1'000'000);
  EXPECT_EQ(MemberOf(model, {"badge", "state"}).as_string(), "fits");
  EXPECT_EQ(MemberOf(web.Ask("GET", "/v1/models").json(), {"data"}).as_array()[0].Find("id")->as_string(),
            PackedRoot() + "/demo");
}

// Checklist items 79, 84, 88, 90.
TEST(Web, ABatchGivesEachFileTheAnswerThatGenerateGives) {
  const Web web;
  const std::vector<std::string> jobs = web.Batch({"A cat.", "A dog and a ball.", "%PDF-1.5", "Rain."}, 40);
  ASSERT_EQ(jobs.size(), 4u);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const std::vector<Json> events = web.Events(jobs[i]);
    ASSERT_GE(events.size(), 2u);
    EXPECT_EQ(events.front().Find("type")->as_string(), "started");
    EXPECT_EQ(events.back().Find("type")->as_string(), i == 2 ? "error" : "done");
  }
  EXPECT_EQ(web.File("f0.txt.out.txt"), Expected("A cat.", 40));
  EXPECT_EQ(web.File("f1.txt.out.txt"), Expected("A dog and a ball.", 40));
  EXPECT_EQ(web.File("f3.txt.out.txt"), Expected("Rain.", 40));
  const auto output = [&](size_t i) { return web.Ask("GET", "/api/jobs/" + jobs[i] + "/output"); };
  EXPECT_EQ(output(0).body, Expected("A cat.", 40));
  EXPECT_EQ(output(0).headers.at("content-type"), "text/plain; charset=utf-8");
  EXPECT_EQ(output(2).status, 404);
  EXPECT_NE(output(2).body.find("has written no file"), std::string::npos);
#ifndef NUNSPARK_SANITIZED
  const Json memory = MemberOf(web.Ask("GET", "/api/stats").json(), {"engine", "memory"});
  EXPECT_LE(MemberOf(memory, {"process_peak"}).as_int(), MemberOf(memory, {"total"}).as_int());
#endif
  EXPECT_EQ(MemberOf(web.Job(jobs[0]), {"metrics", "batch_size"}).as_int(), 3);
  EXPECT_GT(MemberOf(web.Job(jobs[0]), {"metrics", "tok_per_s"}).as_double(), 0);
  EXPECT_NE(MemberOf(web.Job(jobs[2]), {"error"}).as_string().find("PDF"), std::string::npos);
  const Json sidecar = ParseJson(web.File("f2.txt.meta.json"), "sidecar").value();
  EXPECT_EQ(sidecar.Find("status")->as_string(), "error");
  // The same names again.
  const std::string again = web.Batch({"A cat."}, 5)[0];
  web.Events(again);
  EXPECT_EQ(MemberOf(web.Job(again), {"output_path"}).as_string(), web.Path("out/f0.txt.1.out.txt"));
  EXPECT_EQ(MemberOf(web.Job(again), {"metrics"}).Find("batched"), nullptr);
}

// Checklist item 80.
TEST(Web, RequestsThatCannotBeAreRefusedByWhatIsWrong) {
  const Web web;
  const std::string id = web.Upload("a.txt", "text");
  const auto refuse = [&](const std::string& path, const Json& body, int status, const std::string& part) {
    const Reply reply = web.Post(path, body);
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_NE(MemberOf(reply.json(), {"detail"}).as_string().find(part), std::string::npos) << reply.body;
  };
  const auto with = [&](const char* name, Json value) {
    Json body = web.Body({id}, 5);
    body.Set(name, std::move(value));
    return body;
  };
  refuse("/api/batch", with("output_dir", "out"), 400, "absolute");
  refuse("/api/batch", with("model", Demo()), 400, "manifest.json");
  refuse("/api/batch", with("max_tokens", 0), 422, "\"max_tokens\"");
  refuse("/api/batch", with("preset", "slow"), 422, "\"preset\"");
  refuse("/api/batch", with("file_ids", Json::Array{"/etc/hostname"}), 422, "/etc/hostname");
  refuse("/api/batch", with("file_ids", Json::Array()), 422, "\"file_ids\"");
  refuse("/api/batch", with("advanced", Json::Object{{"kv_bits", 3}}), 422, "\"kv_bits\"");
  refuse("/api/pack", Json::Object{}, 400, "\"source\"");
  refuse("/api/pack", Json::Object{{"source", "/no/such/model"}}, 500, "/no/such/model");
  refuse("/api/nothing", Json::Object{}, 404, "/api/nothing");
  refuse("/api/jobs/nobody/cancel", Json::Object{}, 404, "nobody");
  EXPECT_EQ(web.Ask("GET", "/api/jobs/nobody/events").status, 404);
  EXPECT_EQ(web.Ask("POST", "/api/files", "no parts").status, 422);
  EXPECT_EQ(web.Ask("POST", "/api/batch", "[").status, 422);
  EXPECT_TRUE(web.Jobs().as_array().empty());
  // A folder that cannot be used is the job's error.
  const Reply taken = web.Post("/api/batch", with("output_dir", "/proc/nunspark"));
  ASSERT_EQ(taken.status, 200);
  const std::string job = MemberOf(taken.json(), {"jobs"}).as_array()[0].Find("id")->as_string();
  EXPECT_EQ(web.Events(job).back().Find("type")->as_string(), "error");
  EXPECT_NE(web.Job(job).Find("error")->as_string().find("/proc/nunspark"), std::string::npos);
}

// Checklist items 82 and 85.
TEST(Web, ARowIsCancelledAndKeepsItsText) {
  const Web web;
  const std::vector<std::string> jobs = web.Batch({"A cat.", "A dog."}, kLongAnswer);
  ASSERT_TRUE(Eventually([&] { return MemberOf(web.Job(jobs[0]), {"tokens_done"}).as_int() >= 8; }));
  EXPECT_EQ(web.Post("/api/jobs/" + jobs[0] + "/cancel", Json::Object{}).body, R"({"ok":true})");
  const std::vector<Json> events = web.Events(jobs[0]);
  const std::string last = events.back().Find("type")->as_string();
  // The model may have said all it had to say.
  EXPECT_TRUE(last == "cancelled" || last == "done") << last;
  EXPECT_TRUE(Expected("A cat.", kLongAnswer).starts_with(web.File("f0.txt.out.txt")));
  EXPECT_FALSE(web.File("f0.txt.out.txt").empty());
  EXPECT_EQ(ParseJson(web.File("f0.txt.meta.json"), "sidecar").value().Find("status")->as_string(), last);
  EXPECT_EQ(web.Events(jobs[1]).back().Find("type")->as_string(), "done");
  EXPECT_EQ(web.File("f1.txt.out.txt"), Expected("A dog.", kLongAnswer));
}

TEST(Web, PagesOfOtherSitesAreRefused) {
  const Web web;
  EXPECT_EQ(web.Ask("GET", "/api/jobs", "", "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(web.Ask("POST", "/api/batch", "{}", "Origin: null\r\n").status, 403);
  EXPECT_EQ(web.Ask("GET", "/", "", "Sec-Fetch-Site: cross-site\r\n").status, 403);
  EXPECT_EQ(web.Ask("GET", "/api/jobs", "", "Origin: http://localhost\r\n").status, 200);
  Connection connection(web.port());
  connection.Send("GET /api/jobs HTTP/1.1\r\nHost: evil.example:8000\r\n\r\n");
  EXPECT_EQ(connection.ReadReply().status, 403);
  ExpectError(Nunspark("web --host 0.0.0.0 --port 0"), {"--api-key-file"});
}

// Checklist item 76: there are no dependencies that could be missing.
TEST(Web, ThePageLoadsNothingFromElsewhere) {
  const Web web;
  const Reply page = web.Ask("GET", "/");
  ASSERT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_NE(page.headers.at("content-security-policy").find("default-src 'none'"), std::string::npos);
  for (const char* name : {"/index.html", "/app.js", "/style.css", "/icon.svg", "/batch.js", "/zip.js"}) {
    const Reply file = web.Ask("GET", name);
    EXPECT_EQ(file.status, 200) << name;
    EXPECT_EQ(file.body.find("https://"), std::string::npos) << name;
  }
  EXPECT_EQ(web.Ask("GET", "/../etc/passwd").status, 404);
}

TEST(Web, KeysAreAskedForWhereThereAreSome) {
  const TempFolder temp;
  const std::string keys = temp.path() + "/keys";
  ASSERT_EQ(RunShell("echo secret > " + keys, nullptr), 0);
  const Web web("--api-key-file " + keys);
  EXPECT_EQ(web.Ask("GET", "/api/jobs").status, 401);
  EXPECT_EQ(web.Ask("GET", "/api/jobs", "", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(web.Ask("GET", "/").status, 200);
}

// Checklist item 91: the engine's counters start again when it is reopened.
TEST(Web, ChatsAndJobsShareAnEngineThatIsReopenedOnlyForOtherSettings) {
  const Web web;
  const auto steps = [&] { return MemberOf(web.Ask("GET", "/api/stats").json(), {"engine", "steps"}).as_int(); };
  EXPECT_TRUE(web.Ask("GET", "/api/stats").json().Find("engine")->is_null());
  Json chat = Chat("Tell me a story about a cat.", 20);
  chat.Set("model", PackedRoot() + "/demo");
  const Reply answer = web.Post("/v1/chat/completions", chat);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(ContentOf(answer.json()), AloneText("Tell me a story about a cat.", "--max-tokens 20"));
  const int64_t first = steps();
  EXPECT_GT(first, 0);
  web.Events(web.Batch({"A cat."}, 20)[0]);
  const int64_t second = steps();
  EXPECT_GT(second, first);
  EXPECT_EQ(web.Post("/v1/chat/completions", chat).status, 200);
  EXPECT_GT(steps(), second);
  Json body = web.Body({web.Upload("a.txt", "A dog.")}, 3);
  body.Set("advanced", Json::Object{{"kv_bits", 8}});
  web.Events(MemberOf(web.Post("/api/batch", body).json(), {"jobs"}).as_array()[0].Find("id")->as_string());
  EXPECT_LT(steps(), second);
  chat.Set("model", "/no/such/model");
  EXPECT_EQ(web.Post("/v1/chat/completions", chat).status, 404);
  EXPECT_EQ(web.Post("/v1/chat/completions", Chat("Hi")).status, 400);
}

TEST(Web, PacksAModelAndSaysHowFarItIs) {
  const Web web;
  const std::string out = web.Path("packed/new");
  const Reply reply = web.Post("/api/pack", Json::Object{{"source", Demo()}, {"out_dir", out}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(MemberOf(reply.json(), {"out_dir"}).as_string(), out);
  EXPECT_EQ(MemberOf(reply.json(), {"num_layers"}).as_int(), 7);
  const Json state = web.Ask("GET", "/api/task").json();
  EXPECT_EQ(MemberOf(state, {"state"}).as_string(), "done");
  EXPECT_EQ(MemberOf(state, {"done"}), MemberOf(state, {"total"}));
  EXPECT_EQ(Nunspark("verify " + out).code, 0);
  // A checkpoint that lies where packs are stays what it is.
  const std::string beside = PackedRoot() + "/beside";
  fs::copy(Demo(), beside, fs::copy_options::recursive);
  const Reply second = web.Post("/api/pack", Json::Object{{"source", beside}});
  ASSERT_EQ(second.status, 200) << second.body;
  EXPECT_EQ(MemberOf(second.json(), {"out_dir"}).as_string(), beside + "-packed");
  fs::remove_all(beside);
  fs::remove_all(beside + "-packed");
  EXPECT_EQ(web.Post("/api/pack", Json::Object{{"source", Demo()}, {"out_dir", std::string("a\0b", 3)}}).status, 400);
}

TEST(Web, DownloadsNothingWhereThatIsForbidden) {
  const Web web("", "HF_HUB_OFFLINE=1");
  const Reply reply = web.Post("/api/pull", Json::Object{{"repo", "org/model"}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("HF_HUB_OFFLINE"), std::string::npos) << reply.body;
}

TEST(Web, CtrlCKeepsWhatRunsForTheNextStart) {
  Web web;
  const std::vector<std::string> jobs = web.Batch({"A cat.", "A dog.", "Rain."}, kLongAnswer);
  ASSERT_TRUE(Eventually([&] { return MemberOf(web.Job(jobs[2]), {"tokens_done"}).as_int() >= 4; }));
  EXPECT_EQ(web.Stop(SIGINT), 0) << web.Log();
  web.Start();
  for (const std::string& id : jobs) EXPECT_EQ(web.Events(id).back().Find("type")->as_string(), "done");
  EXPECT_EQ(web.File("f2.txt.out.txt"), Expected("Rain.", kLongAnswer));
  EXPECT_FALSE(fs::exists(web.Path("out/f2.txt.1.out.txt")));
}

TEST(Web, CtrlCEndsAChatThatAJobWaitsFor) {
  Web web;
  Json chat = Chat("Tell me a story about a cat.", 1900);
  chat.Set("model", PackedRoot() + "/demo");
  chat.Set("stream", true);
  chat.Set("ignore_eos", true);
  Connection connection(web.port());
  ASSERT_TRUE(connection.Send(RequestText("POST", "/v1/chat/completions", WriteJson(chat))));
  ASSERT_TRUE(connection.ReadUntil("data: "));
  // It needs another engine.
  Json body = web.Body({web.Upload("a.txt", "A dog.")}, 3);
  body.Set("advanced", Json::Object{{"kv_bits", 8}});
  const Json jobs = MemberOf(web.Post("/api/batch", body).json(), {"jobs"});
  const std::string job = jobs.as_array()[0].Find("id")->as_string();
  ASSERT_TRUE(Eventually([&] { return web.StatusOf(job) == "running"; }));
  EXPECT_EQ(web.Stop(SIGINT), 0) << web.Log();
  EXPECT_EQ(connection.ReadReply().body.find("[DONE]"), std::string::npos);
  web.Start();
  EXPECT_EQ(web.Events(job).back().Find("type")->as_string(), "done");
}

// The sign of life of each start is a request, so that kills fall into loading, decoding and ending alike.
TEST(Web, SlowKilledAtFiftyRandomMomentsItLosesNoJobAndCutsNoOutput) {
  Web web;
  constexpr int kKills = 50;
  constexpr int64_t kTokens = 120;
  const std::vector<std::string> contents = {"A cat.", "A dog.", "Rain.", "The sun and the moon.", "A small ball."};
  std::vector<std::string> expected;
  for (const std::string& content : contents) expected.push_back(Expected(content, kTokens));
  std::mt19937 random(7);
  std::vector<std::string> jobs;
  std::map<std::string, std::string> seen;  // output -> its longest content so far
  const auto look = [&] {
    for (const auto& entry : fs::directory_iterator(web.Path("out"))) {
      const std::string path = entry.path();
      if (!path.ends_with(".out.txt")) continue;
      const std::string text = ReadWholeFile(path).value();
      EXPECT_TRUE(text.starts_with(seen[path])) << path << " lost text";
      seen[path] = text;
    }
  };
  for (int kill = 0; kill < kKills; ++kill) {
    if (kill % 10 == 0) {
      for (std::string& id : web.Batch(contents, kTokens)) jobs.push_back(std::move(id));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
    web.Stop(SIGKILL);
    look();
    web.Start();
    ASSERT_EQ(web.Jobs().as_array().size(), jobs.size()) << "after " << kill + 1 << " kills";
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(web.Events(jobs[i]).back().Find("type")->as_string(), "done");
    const Json job = web.Job(jobs[i]);
    const Result<std::string> text = ReadWholeFile(job.Find("output_path")->as_string());
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(*text, expected[i % contents.size()]);
  }
  look();
  // One output for each job, and no stray ones: what was interrupted went on in its own.
  EXPECT_EQ(seen.size(), jobs.size());
}

}  // namespace
}  // namespace nunspark::test
