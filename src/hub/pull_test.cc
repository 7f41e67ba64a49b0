// Pulls from a hub that misbehaves. Nothing here leaves the machine.
#include "hub/pull.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/cache.h"
#include "hub/test_hub_testing.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kWeights = "model.safetensors";

class Hub : public testing::Test {
 protected:
  Hub()
      : hub_({{"config.json", {.content = "{\"model_type\":\"x\"}", .large = false}},
              {kWeights, {.content = RandomBytes(3 << 20, 1)}},
              {"tokenizer.json", {.content = RandomBytes(100000, 2)}},
              {"README.md", {.content = "read", .large = false}},
              {"pytorch_model.bin", {.content = "pickle"}}}),
        cache_(folder_.Path("hub")) {
    // Nothing of this machine's settings may come between.
    for (const char* name : {"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}) {
      ::unsetenv(name);
    }
  }

  PullOptions Options(const std::string& text = "org/model") const {
    PullOptions options;
    options.hub = {.cache = cache_, .endpoint = hub_.endpoint(), .token = "", .offline = false};
    options.ref = ParseRepoRef(text).value();
    options.control.backoff_s = 0.001;
    options.control.http.stall_timeout_s = 2;
    return options;
  }
  static Result<PullReport> PullAll(const PullOptions& options) {
    ASSIGN_OR_RETURN(const PullPlan plan, PlanPull(options));
    return Pull(options, plan);
  }
  std::string Repo() const { return RepoFolder(cache_, "org/model"); }
  std::string Snapshot() const { return Repo() + "/snapshots/" + hub_.kCommit; }
  std::string Blob(const std::string& file) const { return Repo() + "/blobs/" + hub_.Digest(file); }
  void ExpectWhole() const {
    for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"}) {
      const Result<std::string> content = ReadRegularFile(Snapshot() + "/" + file);
      ASSERT_TRUE(content.ok()) << content.status().message();
      EXPECT_TRUE(*content == hub_.Content(file)) << file;
      EXPECT_EQ(fs::read_symlink(Snapshot() + "/" + file), "../../blobs/" + hub_.Digest(file));
      EXPECT_FALSE(fs::exists(Blob(file) + ".incomplete")) << file;
    }
  }
  // No model, and nothing wrong under a right name.
  void ExpectNoWeights(const std::string& file = kWeights) const {
    EXPECT_FALSE(fs::exists(Snapshot() + "/" + file));
    EXPECT_FALSE(fs::exists(Blob(file)));
    EXPECT_FALSE(fs::exists(Repo() + "/refs/main"));
    EXPECT_FALSE(fs::exists(Snapshot() + "/config.json"));
  }
  Status FailingPull(TestServer::Handler fault) {
    hub_.AddFault(kWeights, std::move(fault));
    const Result<PullReport> report = PullAll(Options());
    EXPECT_FALSE(report.ok());
    ExpectNoWeights();
    return report.status();
  }
  void AddPart(const std::string& content) {
    fs::create_directories(Repo() + "/blobs");
    folder_.Write("hub/models--org--model/blobs/" + hub_.Digest(kWeights) + ".incomplete", content);
  }
  std::vector<int64_t> Starts() const {
    std::vector<int64_t> starts;
    for (const TestRequest& request : hub_.requests()) {
      if (request.path.ends_with(kWeights)) starts.push_back(request.from());
    }
    return starts;
  }

  TestHub hub_;
  TestFolder folder_;
  std::string cache_;
};

TEST_F(Hub, FetchesWhatTheModelNeedsInTheLayoutOfHuggingFace) {
  const Result<PullReport> report = PullAll(Options());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->path, Snapshot());
  EXPECT_EQ(report->files, 3);
  EXPECT_EQ(report->bytes, report->downloaded_bytes);
  ExpectWhole();
  EXPECT_EQ(*ReadRegularFile(Repo() + "/refs/main"), hub_.kCommit);
  EXPECT_EQ(hub_.Count("README.md") + hub_.Count("pytorch_model.bin"), 0);
  EXPECT_TRUE(fs::exists(cache_ + "/.locks/models--org--model/" + hub_.Digest(kWeights) + ".lock"));
  EXPECT_EQ((*FindCached(cache_, ParseRepoRef("org/model").value()))->path, Snapshot());
}

TEST_F(Hub, WhatIsThereIsNotFetchedAgain) {
  ASSERT_TRUE(PullAll(Options()).ok());
  const PullPlan plan = PlanPull(Options()).value();
  EXPECT_EQ(plan.missing_bytes, 0);
  const PullReport report = Pull(Options(), plan).value();
  EXPECT_EQ(report.downloaded_bytes, 0);
  EXPECT_EQ(hub_.Count(kWeights), 1);
}

TEST_F(Hub, ABlobThatAnotherToolBroughtIsLinked) {
  fs::create_directories(Repo() + "/blobs");
  folder_.Write("hub/models--org--model/blobs/" + hub_.Digest(kWeights), hub_.Content(kWeights));
  ASSERT_TRUE(PullAll(Options()).ok());
  ExpectWhole();
  EXPECT_EQ(hub_.Count(kWeights), 0);
}

TEST_F(Hub, ARevisionIsNotedUnderItsName) {
  ASSERT_TRUE(PullAll(Options("org/model@refs/pr/1")).ok());
  EXPECT_EQ(*ReadRegularFile(Repo() + "/refs/refs/pr/1"), hub_.kCommit);
  EXPECT_EQ(hub_.requests().front().path, "/api/models/org/model/revision/refs%2Fpr%2F1?blobs=true");
  EXPECT_THAT(PlanPull(Options("org/model@" + std::string(40, 'd'))).status().message(), HasSubstr(hub_.kCommit));
}

TEST_F(Hub, CutConnectionsGoOnWhereTheyEnded) {
  const std::string content = hub_.Content(kWeights);
  for (const int64_t bytes : {0, 1, 1000, 1 << 20, 70000}) hub_.AddFault(kWeights, TestHub::CutAfter(content, bytes));
  const Result<PullReport> report = PullAll(Options());
  ASSERT_TRUE(report.ok()) << report.status().message();
  ExpectWhole();
  EXPECT_THAT(Starts(), testing::ElementsAre(0, 0, 1, 1001, (1 << 20) + 1001, (1 << 20) + 71001));
  // What was begun with one version is not finished with another.
  EXPECT_EQ(hub_.requests().back().Header("if-range"), "\"v1\"");
}

TEST_F(Hub, ConnectionsThatBringNothingAreGivenUp) {
  for (int i = 0; i < 6; ++i) hub_.AddFault(kWeights, TestHub::CutAfter(hub_.Content(kWeights), 0));
  const Status status = PullAll(Options()).status();
  EXPECT_THAT(status.message(), AllOf(HasSubstr(kWeights), HasSubstr("6 failures in a row")));
  ExpectNoWeights();
}

TEST_F(Hub, ASilentServerIsLeftAndAskedAgain) {
  hub_.AddFault(kWeights, [&](const TestRequest&, TestReply& reply) { reply.AwaitClose(); });
  PullOptions options = Options();
  options.control.http.stall_timeout_s = 1;
  ASSERT_TRUE(PullAll(options).ok());
  ExpectWhole();
  EXPECT_EQ(hub_.Count(kWeights), 2);
}

TEST_F(Hub, ASlowServerIsReadToTheEnd) {
  // Each pause is shorter than the time without a byte that is given to a server, all together are longer.
  hub_.AddFault("tokenizer.json", [&](const TestRequest&, TestReply& reply) {
    const std::string content = hub_.Content("tokenizer.json");
    reply.Send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
    for (size_t at = 0; at < content.size(); at += 10000) {
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
      reply.Send(std::string_view(content).substr(at, 10000));
    }
  });
  ASSERT_TRUE(PullAll(Options()).ok());
  ExpectWhole();
  EXPECT_EQ(hub_.Count("tokenizer.json"), 1);
}

TEST_F(Hub, WhereNobodyListensIsNotWaitedFor) {
  PullOptions options = Options();
  options.hub.endpoint = "http://127.0.0.1:9";
  const Status status = PlanPull(options).status();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("files of org/model@main"), HasSubstr("is this machine online"),
                                      Not(HasSubstr("failures in a row"))));
}

TEST_F(Hub, APartOfAnEarlierRunIsContinued) {
  AddPart(hub_.Content(kWeights).substr(0, 12345));
  const PullPlan plan = PlanPull(Options()).value();
  EXPECT_EQ(plan.total_bytes - plan.missing_bytes, 12345);
  ASSERT_TRUE(Pull(Options(), plan).ok());
  ExpectWhole();
  EXPECT_THAT(Starts(), testing::ElementsAre(12345));
}

TEST_F(Hub, ADamagedPartIsFetchedAnew) {
  std::string part = hub_.Content(kWeights).substr(0, 5000);
  part[77] ^= 1;
  AddPart(part);
  ASSERT_TRUE(PullAll(Options()).ok());
  ExpectWhole();
  EXPECT_THAT(Starts(), testing::ElementsAre(5000, 0));
}

TEST_F(Hub, APartLongerThanTheFileIsFetchedAnew) {
  AddPart(hub_.Content(kWeights) + "more");
  ASSERT_TRUE(PullAll(Options()).ok());
  ExpectWhole();
  EXPECT_THAT(Starts(), testing::ElementsAre(0));
}

TEST_F(Hub, AWholePartThatWasNotRenamedNeedsNoRequest) {
  AddPart(hub_.Content(kWeights));
  ASSERT_TRUE(PullAll(Options()).ok());
  ExpectWhole();
  EXPECT_EQ(hub_.Count(kWeights), 0);
}

TEST_F(Hub, APartThatIsALinkIsNotWrittenThrough) {
  fs::create_directories(Repo() + "/blobs");
  const std::string victim = folder_.Write("victim", "precious");
  fs::create_symlink(victim, Blob(kWeights) + ".incomplete");
  EXPECT_THAT(PullAll(Options()).status().message(), HasSubstr("ELOOP"));
  EXPECT_EQ(*ReadRegularFile(victim), "precious");
  ExpectNoWeights();
}

TEST_F(Hub, AServerWithoutRangesSendsAllOfIt) {
  AddPart(hub_.Content(kWeights).substr(0, 5000));
  hub_.AddFault(kWeights, [&](const TestRequest&, TestReply& reply) { reply.Answer(200, "", hub_.Content(kWeights)); });
  ASSERT_TRUE(PullAll(Options()).ok());
  ExpectWhole();
}

TEST_F(Hub, ARangeThatDoesNotExistBeginsAnew) {
  AddPart(hub_.Content(kWeights).substr(0, 5000));
  hub_.AddFault(kWeights, TestHub::Status(416));
  ASSERT_TRUE(PullAll(Options()).ok());
  ExpectWhole();
  EXPECT_THAT(Starts(), testing::ElementsAre(5000, 0));
}

TEST_F(Hub, WrongPartsAreRefused) {
  AddPart(hub_.Content(kWeights).substr(0, 5000));
  EXPECT_THAT(FailingPull([&](const TestRequest&, TestReply& reply) {
                reply.Answer(206, "Content-Range: bytes 4000-3145727/3145728\r\n", hub_.Content(kWeights).substr(4000));
              }).message(),
              AllOf(HasSubstr("expected one from byte 5000"), HasSubstr("found one from byte 4000")));
  EXPECT_THAT(FailingPull(TestHub::Status(206)).message(), HasSubstr("no Content-Range"));
  EXPECT_THAT(FailingPull([&](const TestRequest&, TestReply& reply) {
                reply.Answer(206, "Content-Range: bytes 5000-5999/6000\r\n", std::string(1000, 'x'));
              }).message(),
              HasSubstr("found a server that has 6000"));
}

TEST_F(Hub, AServerThatLiesAboutTheLengthIsNamed) {
  EXPECT_THAT(FailingPull([](const TestRequest&, TestReply& reply) { reply.Answer(200, "", "short"); }).message(),
              AllOf(HasSubstr(kWeights), HasSubstr("expected 3145728 bytes as listed, found a server that sends 5")));
  // Without a length, and without an end.
  EXPECT_THAT(FailingPull([](const TestRequest&, TestReply& reply) {
                reply.Send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                while (reply.Send(std::string(65536, 'x'))) {
                }
              }).message(),
              HasSubstr("a server that sends more"));
  // A length that is told, and not kept: the connection counts as cut, and the rest is asked for.
  hub_.AddFault(kWeights, [&](const TestRequest&, TestReply& reply) {
    reply.Send("HTTP/1.1 200 OK\r\nContent-Length: 3145728\r\n\r\n" + hub_.Content(kWeights).substr(0, 100));
  });
  fs::remove(Blob(kWeights) + ".incomplete");
  EXPECT_TRUE(PullAll(Options()).ok());
  ExpectWhole();
}

TEST_F(Hub, OtherBytesThanThoseOfTheHashAreNotKept) {
  std::string wrong = hub_.Content(kWeights);
  wrong.back() ^= 1;
  const Status status =
      FailingPull([&](const TestRequest& request, TestReply& reply) { TestHub::Serve(wrong, request, reply); });
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("SHA-256"), HasSubstr("expected " + hub_.Digest(kWeights))));
  EXPECT_FALSE(fs::exists(Blob(kWeights) + ".incomplete"));
  fs::remove(Blob("config.json"));
  hub_.AddFault("config.json", [&](const TestRequest& request, TestReply& reply) {
    TestHub::Serve("{\"model_type\":\"y\"}", request, reply);
  });
  EXPECT_THAT(PullAll(Options()).status().message(), AllOf(HasSubstr("config.json"), HasSubstr("git's SHA-1")));
  EXPECT_FALSE(fs::exists(Snapshot() + "/config.json"));
}

TEST_F(Hub, AnErrorPageIsNoFile) {
  EXPECT_EQ(FailingPull(TestHub::Status(404)).code(), StatusCode::kNotFound);
  EXPECT_EQ(FailingPull(TestHub::Status(204)).code(), StatusCode::kDataLoss);
  const Status gated = FailingPull(TestHub::Status(403, "X-Error-Code: GatedRepo\r\n"));
  EXPECT_EQ(gated.code(), StatusCode::kPermission);
  EXPECT_THAT(gated.message(), AllOf(HasSubstr("GatedRepo"), HasSubstr("HF_TOKEN")));
}

TEST_F(Hub, BusyAndBrokenServersAreAskedAgain) {
  hub_.AddFault("", TestHub::Status(503));
  hub_.AddFault("", TestHub::Status(429, "Retry-After: 0\r\n"));
  for (const int status : {429, 500, 502, 503, 504}) hub_.AddFault(kWeights, TestHub::Status(status));
  ASSERT_TRUE(PullAll(Options()).ok());
  ExpectWhole();
  EXPECT_EQ(hub_.Count(kWeights), 6);
  EXPECT_EQ(hub_.Count(""), 3);
}

TEST_F(Hub, AServerThatAsksForALongPauseIsQuoted) {
  const Status status = FailingPull(TestHub::Status(429, "Retry-After: 100000\r\n"));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("100000 seconds"));
}

TEST_F(Hub, TheTokenGoesToTheFirstOriginOnly) {
  TestServer elsewhere([&](const TestRequest& request, TestReply& reply) {
    if (request.path == "/back") {
      // And back to where it came from.
      reply.Answer(302, "Location: " + hub_.endpoint() + "/org/model/resolve/" + hub_.kCommit + "/" + kWeights + "\r\n",
                   "");
    } else {
      TestHub::Serve(hub_.Content("tokenizer.json"), request, reply);
    }
  });
  // Another port of the same machine, and another name of it.
  hub_.AddFault(kWeights, TestHub::RedirectTo(elsewhere.Url() + "/back"));
  hub_.AddFault("tokenizer.json", TestHub::RedirectTo(elsewhere.Url("localhost") + "/cdn"));
  hub_.AddFault("config.json", TestHub::RedirectTo("/org/model/resolve/" + hub_.kCommit + "/config.json"));
  PullOptions options = Options();
  options.hub.token = "hf_secret";
  options.parallel = 1;
  const Result<PullReport> report = PullAll(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ExpectWhole();
  ASSERT_EQ(elsewhere.requests().size(), 2u);
  for (const TestRequest& request : elsewhere.requests()) {
    EXPECT_EQ(request.Header("authorization"), "");
    for (const auto& [name, value] : request.headers) EXPECT_THAT(value, Not(HasSubstr("hf_secret"))) << name;
  }
  int weights = 0;
  for (const TestRequest& request : hub_.requests()) {
    const bool after_redirect = request.path.ends_with(kWeights) && ++weights == 2;
    EXPECT_EQ(request.Header("authorization"), after_redirect ? "" : "Bearer hf_secret") << request.path;
  }
  EXPECT_EQ(weights, 2);
}

TEST_F(Hub, ARedirectedDownloadResumes) {
  const std::string content = hub_.Content(kWeights);
  std::atomic<int> calls{0};
  TestServer cdn([&](const TestRequest& request, TestReply& reply) {
    TestHub::CutAfter(content, calls++ == 0 ? 1 << 20 : 3 << 20)(request, reply);
  });
  for (int i = 0; i < 2; ++i) hub_.AddFault(kWeights, TestHub::RedirectTo(cdn.Url("localhost") + "/x?sig=1"));
  ASSERT_TRUE(PullAll(Options()).ok());
  ExpectWhole();
  ASSERT_EQ(cdn.requests().size(), 2u);
  EXPECT_EQ(cdn.requests()[1].from(), 1 << 20);
}

TEST_F(Hub, RedirectsAreBoundedAndStayOnTheWeb) {
  for (int i = 0; i <= kMaxRedirects; ++i)
    hub_.AddFault(kWeights, TestHub::RedirectTo("/org/model/resolve/" + hub_.kCommit + "/" + kWeights));
  EXPECT_THAT(PullAll(Options()).status().message(), HasSubstr("more than 8 times"));
  for (const std::string to : {"file:///etc/passwd", "ftp://localhost/x", "http://user:pw@localhost/x"}) {
    EXPECT_THAT(FailingPull(TestHub::RedirectTo(to)).message(), HasSubstr("no address that is fetched")) << to;
  }
}

TEST_F(Hub, EndlessHeadersAreCut) {
  EXPECT_THAT(FailingPull([](const TestRequest&, TestReply& reply) {
                reply.Send("HTTP/1.1 200 OK\r\n");
                while (reply.Send("X-A: " + std::string(8000, 'x') + "\r\n")) {
                }
              }).message(),
              HasSubstr("bytes of headers"));
}

TEST_F(Hub, AnEndlessListingIsCut) {
  hub_.AddFault("", [](const TestRequest&, TestReply& reply) {
    reply.Send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    while (reply.Send(std::string(65536, ' '))) {
    }
  });
  EXPECT_EQ(PlanPull(Options()).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(Hub, AHostileListingFetchesNothing) {
  hub_.SetListing(R"({"sha":")" + hub_.kCommit + R"(","siblings":[{"rfilename":"../../../evil","size":1}]})");
  EXPECT_THAT(PullAll(Options()).status().message(), HasSubstr("\"../../../evil\""));
  const std::string digest = hub_.Digest("config.json");
  hub_.SetListing(R"({"sha":")" + hub_.kCommit +
                  R"(","siblings":[{"rfilename":"model.safetensors","size":1,"blobId":")" + digest +
                  R"("},{"rfilename":"config.json","size":1,"blobId":")" + digest +
                  R"("},{"rfilename":"A.jinja","size":1,"blobId":")" + digest +
                  R"("},{"rfilename":"a.jinja","size":1,"blobId":")" + digest + R"("}]})");
  EXPECT_THAT(PullAll(Options()).status().message(), HasSubstr("\"A.jinja\""));
  EXPECT_FALSE(fs::exists(cache_));
}

TEST_F(Hub, AModelLargerThanTheDriveIsRefusedBeforeItIsFetched) {
  hub_.SetListing(R"({"sha":")" + hub_.kCommit +
                  R"(","siblings":[{"rfilename":"x.gguf","size":4000000000000000000,"lfs":{"sha256":")" +
                  std::string(64, 'a') + R"("}}]})");
  const Status status = PullAll(Options()).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("free"), HasSubstr("4000000.00 TB")));
  EXPECT_EQ(hub_.requests().size(), 1u);
}

TEST_F(Hub, AHubWithoutHashesIsRefused) {
  hub_.SetListing(R"({"sha":")" + hub_.kCommit + R"(","siblings":[{"rfilename":"x.gguf","size":1}]})");
  EXPECT_THAT(PullAll(Options()).status().message(), HasSubstr("hash of x.gguf"));
}

TEST_F(Hub, AnUnknownRepositoryIsExplained) {
  const Status status = PlanPull(Options("org/other")).status();
  EXPECT_EQ(status.code(), StatusCode::kPermission);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("org/other"), HasSubstr("RepoNotFound"), HasSubstr("HF_TOKEN")));
}

TEST_F(Hub, AStoppedPullKeepsItsPartAndGoesOn) {
  hub_.AddFault(kWeights, [&](const TestRequest& request, TestReply& reply) {
    TestHub::CutAfter(hub_.Content(kWeights), 1 << 20)(request, reply);
    reply.AwaitClose();
  });
  // The connection stays open in the middle of the file.
  PullOptions options = Options();
  options.parallel = 1;
  std::atomic<bool> stop{false};
  options.control.cancelled = [&] { return stop.load(); };
  options.progress = [&](int64_t done, int64_t) { stop = done > (1 << 20) / 2; };
  EXPECT_EQ(PullAll(options).status().code(), StatusCode::kCancelled);
  ExpectNoWeights();
  const auto part = static_cast<int64_t>(fs::file_size(Blob(kWeights) + ".incomplete"));
  EXPECT_GT(part, 0);
  ASSERT_TRUE(PullAll(Options()).ok());
  ExpectWhole();
  EXPECT_EQ(Starts().back(), part);
}

TEST_F(Hub, TwoPullsAtOnceShareTheWork) {
  std::optional<Result<PullReport>> first, second;
  std::thread other([&] { first = PullAll(Options()); });
  second = PullAll(Options());
  other.join();
  ASSERT_TRUE(first->ok()) << first->status().message();
  ASSERT_TRUE(second->ok()) << second->status().message();
  ExpectWhole();
  EXPECT_EQ(hub_.Count(kWeights), 1);
  EXPECT_EQ(hub_.Count("tokenizer.json"), 1);
}

TEST(GgufHub, OneFileIsFetchedOfMany) {
  TestHub hub({{"x-Q4_K_M.gguf", {.content = "GGUF4"}}, {"x-Q8_0.gguf", {.content = "GGUF8"}}});
  const TestFolder folder;
  PullOptions options;
  options.hub = {.cache = folder.path(), .endpoint = hub.endpoint(), .token = "", .offline = false};
  options.ref = ParseRepoRef("org/model").value();
  EXPECT_THAT(PlanPull(options).status().message(), AllOf(HasSubstr("x-Q4_K_M.gguf"), HasSubstr("x-Q8_0.gguf")));
  options.ref.file = "q4_k_m";
  const PullReport report = Pull(options, PlanPull(options).value()).value();
  EXPECT_EQ(*ReadRegularFile(report.path), "GGUF4");
  EXPECT_TRUE(report.path.ends_with("/x-Q4_K_M.gguf"));
  EXPECT_EQ(hub.Count("x-Q8_0.gguf"), 0);
}

TEST(HttpClient, OriginsCanBeCompared) {
  EXPECT_EQ(OriginOf("HTTPS://Hub.Example/x"), "https://hub.example:443");
  EXPECT_EQ(OriginOf("http://127.0.0.1:8080/x?y#z"), "http://127.0.0.1:8080");
  EXPECT_EQ(OriginOf("ftp://x/"), "");
  EXPECT_EQ(OriginOf("nonsense"), "");
  EXPECT_EQ(PercentEncode("a b/\xc3\xa4?#%", Slashes::kKept), "a%20b/%C3%A4%3F%23%25");
  EXPECT_EQ(PercentEncode("a/b", Slashes::kEncoded), "a%2Fb");
}

}  // namespace
}  // namespace nunspark
