// pull, models and repository ids, against a hub on this machine's loopback. Nothing here leaves the machine.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/eventually_testing.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "formats/safetensors_testing.h"
#include "hub/cache.h"
#include "hub/test_hub_testing.h"
#include "integration/program.h"
#include "io/test_folder.h"

namespace nunspark::test {
namespace {

namespace fs = std::filesystem;

const std::string kWeights = "model.safetensors";

std::string Contents(const std::string& path) { return ReadWholeFile(path).value(); }

std::map<std::string, TestFile> DemoFiles() {
  std::map<std::string, TestFile> files;
  for (const auto& entry : fs::directory_iterator(Demo())) {
    const std::string name = entry.path().filename().string();
    files[name] = {.content = Contents(entry.path().string()), .large = name.ends_with(".safetensors")};
  }
  return files;
}

// The settings that huggingface_hub reads, and no proxy.
std::string Environment(const TestHub& hub, const TempFolder& temp) {
  return "env -u http_proxy -u HTTP_PROXY -u all_proxy -u ALL_PROXY -u HF_TOKEN -u HF_HUB_CACHE -u HF_HUB_OFFLINE "
         "HF_HOME=" +
         temp.path() + "/hf HF_ENDPOINT=" + hub.endpoint() + " ";
}

TEST(Pull, AModelIsUsedByItsNameOnceItIsThere) {
  TestHub hub(DemoFiles());
  const TempFolder temp;
  const std::string with = Environment(hub, temp);
  ExpectError(Nunspark("generate org/model --prompt Hello </dev/null", with),
              {"no file or folder org/model", temp.path().c_str(), "nunspark pull org/model"});
  EXPECT_EQ(hub.requests().size(), 0u);

  const Ran pulled = Nunspark("pull org/model", with);
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  const std::string path = temp.path() + "/hf/hub/models--org--model/snapshots/" + hub.kCommit;
  EXPECT_EQ(pulled.out, path + "\n");
  EXPECT_FALSE(fs::exists(path + "/SOURCES.md"));
  EXPECT_FALSE(fs::exists(path + "/golden.json"));
  const std::string flags = " --prompt 'Tell me a story.' --max-tokens 8";
  EXPECT_EQ(Nunspark("generate org/model" + flags, with).out, Nunspark("generate " + Demo() + flags).out);
  for (const std::string& verb : {std::string("inspect org/model"), std::string("plan org/model --json"),
                                  "pack org/model@main " + temp.path() + "/pack",
                                  "generate " + temp.path() + "/pack --draft-model org/model" + flags}) {
    const Ran ran = Nunspark(verb, with);
    EXPECT_EQ(ran.code, 0) << verb << ran.err;
  }
  const Ran again = Nunspark("pull org/model", with);
  EXPECT_NE(again.err.find("everything was there already"), std::string::npos) << again.err;
  EXPECT_EQ(hub.Count(kWeights), 1);

  const size_t asked = hub.requests().size();
  EXPECT_EQ(Nunspark("pull org/model --offline", with).out, path + "\n");
  ExpectError(Nunspark("pull org/other --offline", with), {"org/other is not in", "--offline"});
  ExpectError(Nunspark("generate org/other --prompt x", with + "HF_HUB_OFFLINE=1 "), {"HF_HUB_OFFLINE"});
  EXPECT_EQ(hub.requests().size(), asked);
}

TEST(Pull, OnATerminalAQuestionComesFirst) {
  TestHub hub(DemoFiles());
  const TempFolder temp;
  const auto answer = [&](const std::string& text) {
    std::string out;
    RunShell("printf '" + text + "\\n' | " + Environment(hub, temp) + "script -qec '" + kBinary +
                 " inspect org/model' /dev/null",
             &out);
    return out;
  };
  const std::string refused = answer("n");
  EXPECT_NE(refused.find("org/model is not on this machine. Download "), std::string::npos) << refused;
  EXPECT_NE(refused.find("MB from " + hub.endpoint() + "? [y/N]"), std::string::npos) << refused;
  EXPECT_NE(refused.find("aborted"), std::string::npos) << refused;
  EXPECT_EQ(hub.Count(kWeights), 0);
  EXPECT_FALSE(fs::exists(temp.path() + "/hf"));
  const std::string taken = answer("y");
  EXPECT_NE(taken.find("qwen3_moe"), std::string::npos) << taken;
  EXPECT_EQ(hub.Count(kWeights), 1);
}

TEST(Pull, WrongArgumentsAreNamed) {
  TestHub hub({});
  const TempFolder temp;
  const std::string with = Environment(hub, temp);
  ExpectError(Nunspark("pull ../up", with), {"'../up' is no repository id"});
  ExpectError(Nunspark("pull org/model:a --file b", with), {"named twice"});
  ExpectError(Nunspark("pull org/model --endpoint mirror", with), {"--endpoint", "https://"});
  ExpectError(Nunspark("pull org/model", with + "HF_ENDPOINT=ftp://x "), {"HF_ENDPOINT"});
  EXPECT_EQ(Nunspark("pull org/model --parallel 0", with).code, 2);
  ExpectError(Nunspark("pull org/model", with), {"no weights at all"});
}

TEST(Pull, AHubThatCannotBeReachedIsNamedBeforeAndAfter) {
  const TempFolder temp;
  const std::string with = "env -u http_proxy -u all_proxy -u HTTP_PROXY -u ALL_PROXY HF_HOME=" + temp.path() + "/hf ";
  // Port 9 of this machine: nobody listens.
  const Ran ran = Nunspark("pull org/model --endpoint http://127.0.0.1:9", with);
  ExpectError(ran, {"files of org/model@main: http://127.0.0.1:9:", "online"});
  EXPECT_TRUE(ran.err.starts_with("asking http://127.0.0.1:9 for the files of org/model@main\n")) << ran.err;
}

TEST(Pull, ACertificateThatNobodyVouchesForIsRefused) {
  const TempFolder temp;
  std::string out, err;
  if (RunShell("openssl version", &out, &err) != 0) GTEST_SKIP() << "no openssl program";
  const std::string script =
      "cd " + temp.path() +
      " && openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost"
      " -addext subjectAltName=DNS:localhost 2>/dev/null || exit 9;"
      // Port 0: one that is free, which it says.
      " openssl s_server -accept 127.0.0.1:0 -key key.pem -cert cert.pem -www >said 2>/dev/null </dev/null & server=$!;"
      " while ! grep -q ^ACCEPT said 2>/dev/null; do kill -0 $server || exit 8; sleep 0.05; done;"
      " port=$(sed -n 's/^ACCEPT .*://p' said);"
      " env -u https_proxy -u HTTPS_PROXY -u all_proxy -u ALL_PROXY HF_HOME=" +
      temp.path() + "/hf HF_TOKEN=hf_secret " + kBinary +
      " pull org/model --endpoint https://localhost:$port; code=$?; kill $server; exit $code";
  EXPECT_EQ(RunShell(script, &out, &err), 1) << out << err;
  EXPECT_NE(err.find("certificate"), std::string::npos) << err;
}

// A pull in a process of its own, that a test ends when it likes.
class Puller {
 public:
  Puller(const TestHub& hub, const std::string& home) {
    const std::string endpoint = "HF_ENDPOINT=" + hub.endpoint();
    const std::string hf_home = "HF_HOME=" + home;
    const char* const arguments[] = {kBinary.c_str(), "pull", "org/model", nullptr};
    const char* const environment[] = {endpoint.c_str(), hf_home.c_str(), nullptr};
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int nowhere = ::open("/dev/null", O_WRONLY);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    ::execve(kBinary.c_str(), const_cast<char* const*>(arguments), const_cast<char* const*>(environment));
    ::_exit(127);
  }
  pid_t pid() const { return pid_; }
  int Wait() const {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return status;
  }

 private:
  pid_t pid_ = -1;
};

// Sends `bytes` of what is asked for, then does `then`, and nothing more.
TestServer::Handler StopAfter(const std::string& content, int64_t bytes, std::function<void()> then) {
  return [content, bytes, then = std::move(then)](const TestRequest& request, TestReply& reply) {
    TestHub::CutAfter(content, bytes)(request, reply);
    then();
    reply.AwaitClose();
  };
}

void ExpectRightOrNone(const TestHub& hub, const std::string& home) {
  const std::string repo = RepoFolder(home + "/hub", "org/model");
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"}) {
    for (const std::string& path :
         {repo + "/blobs/" + hub.Digest(file), repo + "/snapshots/" + hub.kCommit + "/" + file}) {
      if (!fs::exists(path)) continue;
      ASSERT_TRUE(Contents(path) == hub.Content(file)) << path;
    }
  }
}

TEST(Pull, KilledAtAnyByteTheFilesAreRightOrNotThere) {
  TestHub hub({{"config.json", {.content = R"({"model_type":"llama"})", .large = false}},
               {"tokenizer.json", {.content = RandomBytes(60000, 1)}},
               {kWeights, {.content = RandomBytes(700000, 2)}}});
  const TempFolder temp;
  std::mt19937 random(7);
  constexpr int kKills = 100;
  int kills = 0, whole = 0;
  for (int run = 0; run < 6 * kKills && kills < kKills; ++run) {
    const std::string home = temp.path() + "/" + std::to_string(whole);
    std::atomic<pid_t> victim{0};
    std::atomic<bool> over{false};
    const std::string file = random() % 3 == 0 ? "tokenizer.json" : kWeights;
    const std::string content = hub.Content(file);
    hub.AddFault(file, StopAfter(content, static_cast<int64_t>(random() % (content.size() / 3)), [&] {
                   EXPECT_TRUE(Eventually([&] { return victim != 0; }));
                   if (!over) ::kill(victim, SIGKILL);
                 }));
    const Puller puller(hub, home);
    victim = puller.pid();
    const int status = puller.Wait();
    over = true;
    ExpectRightOrNone(hub, home);
    if (WIFSIGNALED(status)) {
      ++kills;
    } else {
      ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      ++whole;
      // The file was there already, and the one who was to be killed did not come by.
      hub.ClearFaults();
    }
  }
  EXPECT_EQ(kills, kKills);
  hub.ClearFaults();
  const std::string home = temp.path() + "/" + std::to_string(whole);
  EXPECT_EQ(Puller(hub, home).Wait(), 0);
  ExpectRightOrNone(hub, home);
  EXPECT_TRUE(FindCached(home + "/hub", ParseRepoRef("org/model").value()).value().has_value());
}

TEST(Pull, CtrlCStopsAndTheNextPullGoesOn) {
  TestHub hub({{"config.json", {.content = "{}", .large = false}},
               {"tokenizer.json", {.content = "{}", .large = false}},
               {kWeights, {.content = RandomBytes(700000, 2)}}});
  const TempFolder temp;
  std::atomic<pid_t> victim{0};
  const std::string part = temp.path() + "/hub/models--org--model/blobs/" + hub.Digest(kWeights) + ".incomplete";
  hub.AddFault(kWeights, StopAfter(hub.Content(kWeights), 300000, [&] {
                 std::error_code none;
                 EXPECT_TRUE(Eventually([&] { return victim != 0 && fs::file_size(part, none) == 300000; }));
                 ::kill(victim, SIGINT);
               }));
  const Puller puller(hub, temp.path());
  victim = puller.pid();
  const int status = puller.Wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_EQ(Puller(hub, temp.path()).Wait(), 0);
  ExpectRightOrNone(hub, temp.path());
  std::vector<int64_t> starts;
  for (const TestRequest& request : hub.requests()) {
    if (request.path.ends_with(kWeights)) starts.push_back(request.from());
  }
  EXPECT_EQ(starts, (std::vector<int64_t>{0, 300000}));
}

// The demo model in three files of weights, whose boundaries fall inside layers.
std::map<std::string, TestFile> ShardedDemoFiles(const TempFolder& temp) {
  std::map<std::string, TestFile> files = DemoFiles();
  const std::string weights = files[kWeights].content;
  SafetensorsFile whole = ReadSafetensorsFile(Demo() + "/" + kWeights).value();
  // Layer after layer, as models are published.
  std::sort(whole.tensors.begin(), whole.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  constexpr size_t kShards = 3;
  Json::Object map;
  for (size_t shard = 0; shard < kShards; ++shard) {
    const std::string name = "model-0000" + std::to_string(shard + 1) + "-of-00003.safetensors";
    std::vector<TensorToWrite> tensors;
    for (size_t i = shard * whole.tensors.size() / kShards; i < (shard + 1) * whole.tensors.size() / kShards; ++i) {
      const TensorInfo& tensor = whole.tensors[i];
      const std::string_view data =
          std::string_view(weights).substr(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes));
      tensors.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .data = data});
      map.emplace_back(tensor.name, name);
    }
    EXPECT_TRUE(WriteSafetensorsFile(temp.path() + "/" + name, tensors).ok());
    files[name] = {.content = Contents(temp.path() + "/" + name)};
  }
  files["model.safetensors.index.json"] = {.content = WriteJson(Json::Object{{"weight_map", std::move(map)}}),
                                           .large = false};
  files.erase(kWeights);
  return files;
}

int64_t BytesOnDrive(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 ? int64_t{info.st_blocks} * 512 : 0;
}

TEST(PullIntoPack, GivesThePackOfTheCheckpointWithoutASecondCopy) {
  const TempFolder temp;
  const std::map<std::string, TestFile> files = ShardedDemoFiles(temp);
  TestHub hub(files);
  const std::string with = Environment(hub, temp);
  ASSERT_EQ(Nunspark("pull org/model", with).code, 0);
  ASSERT_EQ(Nunspark("pack org/model " + temp.path() + "/expected", with).code, 0);

  const std::string out = temp.path() + "/pack", folder = out + ".download/";
  const std::string first = "model-00001-of-00003.safetensors", last = "model-00003-of-00003.safetensors";
  // The header is answered, the file is not.
  hub.AddFault(
      last, [&](const TestRequest& request, TestReply& reply) { TestHub::Serve(hub.Content(last), request, reply); });
  hub.AddFault(last, TestHub::Status(404));
  ExpectError(Nunspark("pull org/model --pack " + out, with), {last.c_str(), "404"});
  EXPECT_FALSE(fs::exists(out));
  // Everything of the first file is in the pack by now.
  EXPECT_EQ(static_cast<size_t>(fs::file_size(folder + first)), hub.Content(first).size());
  EXPECT_LT(BytesOnDrive(folder + first), static_cast<int64_t>(hub.Content(first).size()) / 4);
  const int64_t asked = hub.Count(first);

  hub.AddFault(last, TestHub::CutAfter(hub.Content(last), 10000));
  const Ran packed = Nunspark("pull org/model --pack " + out, with);
  ASSERT_EQ(packed.code, 0) << packed.err;
  EXPECT_EQ(packed.out, out + "\n");
  EXPECT_EQ(hub.Count(first), asked);
  EXPECT_FALSE(fs::exists(out + ".download"));
  EXPECT_FALSE(fs::exists(out + ".partial"));
  std::string difference;
  EXPECT_EQ(RunShell("diff -r " + out + " " + temp.path() + "/expected", &difference), 0) << difference;
  EXPECT_EQ(Nunspark("verify " + out).code, 0);
  const Ran again = Nunspark("pull org/model --pack " + out, with);
  EXPECT_NE(again.err.find("is up to date"), std::string::npos) << again.err;
}

TEST(PullIntoPack, AHeaderThatChangesIsRefused) {
  const TempFolder temp;
  TestHub hub(DemoFiles());
  const std::string with = Environment(hub, temp);
  // The same length, one tensor's name in another spelling.
  std::string other = hub.Content(kWeights);
  other[other.find("model.layers.0")] = 'M';
  hub.AddFault(kWeights, [&](const TestRequest& request, TestReply& reply) { TestHub::Serve(other, request, reply); });
  EXPECT_EQ(Nunspark("pull org/model --pack " + temp.path() + "/pack", with).code, 1);
  EXPECT_FALSE(fs::exists(temp.path() + "/pack"));
  // A header that claims to be huge.
  std::string huge = hub.Content(kWeights);
  huge[5] = 1;
  fs::remove_all(temp.path() + "/pack.download");
  hub.AddFault(kWeights, [&](const TestRequest& request, TestReply& reply) { TestHub::Serve(huge, request, reply); });
  ExpectError(Nunspark("pull org/model --pack " + temp.path() + "/pack", with), {kWeights.c_str(), "more than 100"});
}

TEST(PullIntoPack, WhatItCannotDoIsSaid) {
  TestHub hub({{"x.gguf", {.content = "GGUF"}}});
  const TempFolder temp;
  const std::string with = Environment(hub, temp);
  ExpectError(Nunspark("pull org/model --pack " + temp.path() + "/p", with),
              {"safetensors", "GGUF", "'nunspark pull org/model:", "'nunspark pack org/model:"});
  ExpectError(Nunspark("pull org/model --offline --pack " + temp.path() + "/p", with), {"--pack"});
  EXPECT_TRUE(fs::is_empty(temp.path()));
}

TEST(Models, ListsWhatIsThereAndHowItWouldRun) {
  TestHub hub(DemoFiles());
  const TempFolder temp;
  const std::string with = Environment(hub, temp);
  const std::string packed = " --packed-root " + temp.path() + "/packed";
  const Ran none = Nunspark("models" + packed, with);
  EXPECT_EQ(none.code, 0);
  EXPECT_NE(none.err.find("nunspark pull"), std::string::npos) << none.err;
  ASSERT_EQ(Nunspark("pull org/model", with).code, 0);
  fs::create_directories(temp.path() + "/packed/broken");
  std::ofstream(temp.path() + "/packed/broken/manifest.json") << "{}";
  ASSERT_EQ(Nunspark("pack org/model " + temp.path() + "/packed/demo", with).code, 0);

  fs::copy(ModelPath("demo-eagle"), temp.path() + "/packed/eagle");

  const Json::Array models = JsonOf(Nunspark("models --json" + packed, with)).Find("models")->as_array();
  ASSERT_EQ(models.size(), 4u);
  EXPECT_EQ(MemberOf(models[0], {"name"}), Json("broken"));
  EXPECT_NE(MemberOf(models[0], {"problem"}), Json());
  EXPECT_EQ(MemberOf(models[1], {"name"}), Json("demo"));
  EXPECT_EQ(MemberOf(models[1], {"kind"}), Json("packed"));
  EXPECT_EQ(MemberOf(models[2], {"name"}), Json("eagle"));
  EXPECT_EQ(MemberOf(models[2], {"fit"}), Json("drafts"));
  EXPECT_EQ(models[2].Find("problem"), nullptr);
  EXPECT_EQ(MemberOf(models[3], {"name"}), Json("org/model"));
  EXPECT_EQ(MemberOf(models[3], {"kind"}), Json("unpacked"));
  EXPECT_EQ(MemberOf(models[3], {"snapshot"}), Json(hub.kCommit));
  for (const size_t i : {1, 3}) {
    EXPECT_EQ(MemberOf(models[i], {"fit"}), Json("fits"));
    EXPECT_GT(MemberOf(models[i], {"total_bytes"}).as_int(), 0);
  }
  const Ran text = Nunspark("models" + packed, with);
  EXPECT_NE(text.out.find("org/model  unpacked"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("fits ("), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("it drafts for another model (generate --eagle-drafter)"), std::string::npos) << text.out;

  ExpectError(Nunspark("models remove demo </dev/null" + packed, with), {"would remove", "--yes"});
  EXPECT_EQ(Nunspark("models remove demo --yes" + packed, with).code, 0);
  EXPECT_EQ(Nunspark("models remove org/model --yes" + packed, with).code, 0);
  EXPECT_FALSE(fs::exists(temp.path() + "/packed/demo"));
  EXPECT_FALSE(fs::exists(temp.path() + "/hf/hub/models--org--model"));
  ExpectError(Nunspark("models remove org/model --yes" + packed, with), {"org/model is not in"});
}

}  // namespace
}  // namespace nunspark::test
