// generate --batch: a file of prompts, many at once, as if each were alone; and what a run that was stopped leaves.

#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/read_file.h"
#include "integration/program.h"
#include "integration/support.h"
#include "io/file.h"

namespace nunspark::test {
namespace {

std::string PromptOf(int i) {
  const char* const things[] = {"a cat", "the sea", "a red ball", "two friends", "a lost key"};
  return "Tell me a story about " + std::string(things[i % 5]) + " number " + std::to_string(i) + ".";
}

class Batches : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return temp_.path() + "/" + name; }

  void WriteLines(const std::vector<std::string>& lines) const {
    std::ofstream file(Path("in.jsonl"));
    for (const std::string& line : lines) file << line << "\n";
  }

  std::vector<std::string> ManyLines(int count, int tokens) const {
    std::vector<std::string> lines;
    for (int i = 0; i < count; ++i) {
      Json line(Json::Object{{"prompt", PromptOf(i)}, {"max_tokens", int64_t{tokens} + i % 7}});
      if (i % 3 == 1) {
        line.Set("temperature", 0.8);
        line.Set("seed", int64_t{i});
      }
      lines.push_back(WriteJson(line));
    }
    return lines;
  }

  std::string Command(const std::string& more = "") const {
    return "generate " + Demo() + " --batch " + Path("in.jsonl") + " --out " + Path("out.jsonl") + " " + more;
  }

  // By index. Every line must be whole, and none stand twice.
  std::map<int64_t, Json> ReadResults() const {
    std::map<int64_t, Json> results;
    std::ifstream file(Path("out.jsonl"));
    for (std::string line; std::getline(file, line);) {
      Result<Json> json = ParseJson(line, "a result");
      EXPECT_TRUE(json.ok()) << line;
      if (!json.ok()) continue;
      const int64_t index = json->Find("index")->as_int();
      EXPECT_TRUE(results.emplace(index, std::move(json).value()).second) << index << " stands twice";
    }
    return results;
  }

  TempFolder temp_;
};

TEST_F(Batches, EveryTextIsTheOneThatItsPromptGivesAlone) {
  std::vector<std::string> lines = ManyLines(9, 20);
  lines.push_back(R"({"prompt": "Tell me a story.", "max_tokens": 60, "stop": [". "], "id": {"any": "thing"}})");
  lines.push_back(
      R"({"messages": [{"role": "user", "content": "A bird?"}], "max_tokens": 12, "id": 7, "logprobs": 2})");
  WriteLines(lines);
  const Ran ran = Nunspark(Command("--parallel 4"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(ran.out.empty());
  EXPECT_NE(ran.err.find("11 of 11 prompts done"), std::string::npos) << ran.err;
  const std::map<int64_t, Json> results = ReadResults();
  ASSERT_EQ(results.size(), 11u);
  for (int i = 0; i < 9; ++i) {
    std::string flags = " --max-tokens " + std::to_string(20 + i % 7);
    if (i % 3 == 1) flags += " --temp 0.8 --seed " + std::to_string(i);
    const Ran alone = Nunspark("generate " + Demo() + " --prompt '" + PromptOf(i) + "'" + flags);
    EXPECT_EQ(results.at(i).Find("text")->as_string() + "\n", alone.out) << i;
  }
  EXPECT_EQ(results.at(9).Find("finish_reason")->as_string(), "stop");
  EXPECT_EQ(results.at(9).Find("text")->as_string().find(". "), std::string::npos);
  EXPECT_EQ(WriteJson(*results.at(9).Find("id")), R"({"any":"thing"})");
  EXPECT_EQ(results.at(10).Find("id")->as_int(), 7);
  ASSERT_NE(results.at(10).Find("logprobs"), nullptr);
  const Json::Array& logprobs = results.at(10).Find("logprobs")->as_array();
  EXPECT_EQ(std::ssize(logprobs), results.at(10).Find("tokens")->as_int());
  EXPECT_EQ(logprobs[0].Find("best")->as_array().size(), 2u);
  EXPECT_EQ(results.at(0).Find("logprobs"), nullptr);

  // Drafts change nothing either.
  std::filesystem::rename(Path("out.jsonl"), Path("plain.jsonl"));
  EXPECT_EQ(
      Nunspark(Command("--parallel 4 --draft-model " + ModelPath("demo-draft-4bit") + " --num-draft-tokens 4")).code,
      0);
  const std::map<int64_t, Json> drafted = ReadResults();
  EXPECT_EQ(drafted, results);
}

TEST_F(Batches, BadLinesAreResultsAndTheOthersGoOn) {
  WriteLines({R"({"prompt": "Hello", "max_tokens": 4})", "no json", R"({"id": "x"})", "",
              R"({"id": 9, "max_token": 4})", R"({"prompt": "Hello", "top_p": 3})",
              R"({"prompt": "Hello", "max_tokens": 100000000})", R"({"prompt": 5})",
              R"({"prompt_ids": [1, 99999999], "max_tokens": 2})", R"({"prompt": "Hello", "stop": 3})"});
  const Ran ran = Nunspark(Command());
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_NE(ran.err.find("8 failed"), std::string::npos) << ran.err;
  const std::map<int64_t, Json> results = ReadResults();
  ASSERT_EQ(results.size(), 9u);
  EXPECT_NE(results.at(0).Find("text"), nullptr);
  const std::vector<std::string> parts = {"",
                                          "not valid JSON",
                                          "one of",
                                          "\"max_token\" is no field",
                                          "top-p",
                                          "do not fit the context",
                                          "\"prompt\" must be a string",
                                          "99999999",
                                          "\"stop\" must be a string or a list"};
  for (size_t i = 1; i < parts.size(); ++i) {
    const Json* const error = results.at(static_cast<int64_t>(i)).Find("error");
    ASSERT_NE(error, nullptr) << i;
    EXPECT_NE(error->Find("message")->as_string().find(parts[i]), std::string::npos) << WriteJson(*error);
  }
  EXPECT_EQ(results.at(3).Find("id")->as_int(), 9);
  // The same command again has nothing left to do, and still says that some failed.
  const Ran again = Nunspark(Command());
  EXPECT_EQ(again.code, 1) << again.err;
  EXPECT_NE(again.err.find("1 of 9 prompts done (1 before)"), std::string::npos) << again.err;
  EXPECT_NE(again.err.find("8 failed"), std::string::npos) << again.err;
  EXPECT_EQ(ReadResults(), results);
}

TEST_F(Batches, GoOnAfterAKillAndRunNothingTwice) {
  const std::vector<std::string> lines = ManyLines(30, 60);
  WriteLines(lines);
  ASSERT_EQ(Nunspark(Command("--parallel 3")).code, 0);
  const std::map<int64_t, Json> whole = ReadResults();
  ASSERT_EQ(whole.size(), 30u);
  std::filesystem::remove(Path("out.jsonl"));

  for (int round = 0; round < 4; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      execl(kBinary.c_str(), kBinary.c_str(), "generate", Demo().c_str(), "--batch", Path("in.jsonl").c_str(), "--out",
            Path("out.jsonl").c_str(), "--parallel", "3", nullptr);
      _exit(127);
    }
    // Killed once it has written something more than before.
    const auto size = [&] {
      std::error_code none;
      const auto bytes = std::filesystem::file_size(Path("out.jsonl"), none);
      return none ? uintmax_t{0} : bytes;
    };
    const uintmax_t before = size();
    for (int i = 0; i < 2000 && size() <= before && waitpid(child, nullptr, WNOHANG) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    kill(child, round == 3 ? SIGINT : SIGKILL);
    waitpid(child, nullptr, 0);
    // As if the machine had stopped in the middle of a line.
    if (round == 1) std::ofstream(Path("out.jsonl"), std::ios::app) << R"({"index":29,"line":"00)";
  }
  const Ran last = Nunspark(Command("--parallel 3"));
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_NE(last.err.find(" before)"), std::string::npos) << last.err;
  EXPECT_EQ(ReadResults(), whole);

  // As if it had stopped right before the end of a line; then of all but two.
  std::string text = ReadWholeFile(Path("out.jsonl")).value();
  text.pop_back();
  for (const bool all : {true, false}) {
    if (!all) text.resize(text.rfind('\n', text.rfind('\n') - 1));
    std::ofstream(Path("out.jsonl")) << text;
    const Ran again = Nunspark(Command("--parallel 3"));
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_NE(again.err.find(all ? "(30 before)" : "(28 before)"), std::string::npos) << again.err;
    EXPECT_EQ(ReadResults(), whole);
  }
}

TEST_F(Batches, ShareNoFileOfResultsWithAnotherRun) {
  WriteLines(ManyLines(3, 4));
  {
    std::ofstream(Path("out.jsonl")).close();
    const File other = File::OpenRead(Path("out.jsonl")).value();
    ASSERT_EQ(flock(other.fd(), LOCK_EX), 0);
    const Ran refused = Nunspark(Command());
    EXPECT_EQ(refused.code, 1);
    EXPECT_NE(refused.err.find("another run writes"), std::string::npos) << refused.err;
    EXPECT_EQ(ReadWholeFile(Path("out.jsonl")).value(), "");
  }
  EXPECT_EQ(Nunspark(Command()).code, 0);
  EXPECT_EQ(ReadResults().size(), 3u);
}

TEST_F(Batches, RefuseResultsOfOtherLinesAndFilesThatAreNoResults) {
  WriteLines(ManyLines(3, 4));
  ASSERT_EQ(Nunspark(Command()).code, 0);
  std::vector<std::string> lines = ManyLines(3, 4);
  lines[1] = R"({"prompt": "Another one", "max_tokens": 4})";
  WriteLines(lines);
  const Ran changed = Nunspark(Command());
  EXPECT_EQ(changed.code, 1);
  EXPECT_NE(changed.err.find("line 2 of"), std::string::npos) << changed.err;
  EXPECT_EQ(ReadResults().size(), 3u);

  std::ofstream(Path("out.jsonl")) << R"({"some": "thing"})"
                                   << "\n";
  const Ran other = Nunspark(Command());
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("holds no results of a batch"), std::string::npos) << other.err;
  EXPECT_EQ(ReadWholeFile(Path("out.jsonl")).value(), "{\"some\": \"thing\"}\n");

  // None of these could be the beginning of a result that was cut off.
  for (const std::string notes : {"My notes.", "My notes.\n", "{\"index\":0,\"li\nMy notes.\n", "[1, 2]"}) {
    std::ofstream(Path("out.jsonl")) << notes;
    EXPECT_EQ(Nunspark(Command()).code, 1) << notes;
    EXPECT_EQ(ReadWholeFile(Path("out.jsonl")).value(), notes);
  }
  std::ofstream(Path("out.jsonl")) << "{\"ind";
  EXPECT_EQ(Nunspark(Command()).code, 0);
  EXPECT_EQ(ReadResults().size(), 3u);

  WriteLines({});
  std::filesystem::remove(Path("out.jsonl"));
  EXPECT_NE(Nunspark(Command()).err.find("holds no line"), std::string::npos);
  for (const char* flags : {"--prompt x", "--json", "--metrics", "--parallel 0"}) {
    EXPECT_EQ(Nunspark(Command(flags)).code, 1) << flags;
  }
}

}  // namespace
}  // namespace nunspark::test
