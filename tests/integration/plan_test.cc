// How much memory a run takes: what is planned, what is allowed, what is used.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "base/sanitized_testing.h"
#include "engine/model_files.h"
#include "integration/program.h"
#include "integration/support.h"
#include "io/file.h"

namespace nunspark::test {
namespace {

const std::string kGenerate = "generate " + Demo() + " --prompt x --max-tokens 4 --json ";

// The value that the error line's last words suggest for a flag.
std::string SuggestedFlag(const Ran& ran) {
  const size_t at = ran.err.rfind(" try --");
  EXPECT_NE(at, std::string::npos) << ran.err;
  return at == std::string::npos ? "" : ran.err.substr(at + 5, ran.err.size() - at - 6);
}

TEST(Plan, PartsAddUpToTheTotal) {
  const Json plan = JsonOf(Nunspark("plan --json " + Demo()));
  int64_t sum = 0;
  const Json parts = MemberOf(plan, {"parts"});
  for (const auto& [name, bytes] : parts.as_object()) sum += bytes.as_int();
  EXPECT_EQ(sum, MemberOf(plan, {"total_bytes"}).as_int());
  EXPECT_LE(MemberOf(plan, {"floor_bytes"}).as_int(), MemberOf(plan, {"knee_bytes"}).as_int());
  EXPECT_LE(MemberOf(plan, {"knee_bytes"}).as_int(), MemberOf(plan, {"full_bytes"}).as_int());
}

TEST(Plan, ContextsBeyondTheModelAreTakenWithTheNoteThatGenerateGives) {
  const std::string note = "Note: --context 4096 goes beyond the 2048 positions that this model was made for\n";
  for (const char* verb : {"plan", "inspect"}) {
    const auto run = [&](const char* context) {
      const Ran ran = Nunspark(std::string(verb) + " --json " + Demo() + " --context " + context);
      EXPECT_EQ(ran.code, 0) << ran.err;
      EXPECT_EQ(ran.err, std::stoi(context) > 2048 ? note : "") << verb;
      return ran;
    };
    run("2048");
    run("4096");
  }
  const auto kv = [](const char* context) {
    return MemberOf(JsonOf(Nunspark("plan --json " + Demo() + " --context " + context)), {"parts", "KV"}).as_int();
  };
  EXPECT_GE(kv("4096"), 2 * kv("2048"));
}

TEST(Plan, WhatDraftsIsAPartOfIt) {
  const auto drafter = [](const std::string& flags) {
    return MemberOf(JsonOf(Nunspark("plan --json " + Demo() + flags)), {"parts", "drafter"}).as_int();
  };
  EXPECT_EQ(drafter(""), 0);
  const int64_t chain = drafter(" --eagle-drafter " + ModelPath("demo-eagle"));
  EXPECT_GT(chain, static_cast<int64_t>(std::filesystem::file_size(ModelPath("demo-eagle") + "/model.safetensors")));
  EXPECT_GT(drafter(" --eagle-drafter " + ModelPath("demo-eagle") + " --tree 8,8,8"), chain);
  EXPECT_GT(drafter(" --draft-model " + ModelPath("demo-draft-4bit")), 0);
}

TEST(Plan, MoreMemoryNeverReadsMore) {
  const Json plan = JsonOf(Nunspark("plan --json " + Demo()));
  const Json budgets = MemberOf(plan, {"budgets"});
  ASSERT_GE(budgets.as_array().size(), 3U);
  double before = 1e18;
  for (const Json& row : budgets.as_array()) {
    const double bytes = MemberOf(row, {"expected", "bytes_per_token"}).as_double();
    EXPECT_LT(bytes, before);
    EXPECT_GT(MemberOf(row, {"expected", "tokens_per_s"}).as_double(), 0);
    before = bytes;
  }
  EXPECT_EQ(before, 0) << "with all weights in memory nothing is read";
}

TEST(Plan, TextExplainsFloorAndKnee) {
  const Ran ran = Nunspark("plan " + Demo() + " --budget 3.7MB --context 64 --parallel 2");
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* part : {"expert slots", "64 positions x 2 sequences", "floor", "knee", "full", "tokens/s", "reserve",
                           "total", "experts of one token"}) {
    EXPECT_NE(ran.out.find(part), std::string::npos) << part << "\n" << ran.out;
  }
}

TEST(Plan, IsWhatARunUses) {
  for (const std::string& drafter : {std::string(), "--eagle-drafter " + ModelPath("demo-eagle") + " "}) {
    const std::string flags = " --budget 3.7MB --threads 2 --prefill-chunk 16 " + drafter;
    const Json run = JsonOf(Nunspark(kGenerate + flags));
    const int64_t context = MemberOf(run, {"timings", "prompt_tokens"}).as_int() + 3;
    const Json plan = JsonOf(Nunspark("plan --json " + Demo() + flags + "--context " + std::to_string(context)));
    EXPECT_EQ(MemberOf(plan, {"budget_bytes"}).as_int(), MemberOf(run, {"memory", "budget_bytes"}).as_int());
    // The two processes themselves differ by what they have touched.
    EXPECT_NEAR(MemberOf(plan, {"total_bytes"}).as_double(), MemberOf(run, {"memory", "plan_bytes"}).as_double(), 4e6);
    EXPECT_LE(MemberOf(run, {"memory", "peak_bytes"}).as_int(), MemberOf(run, {"memory", "plan_bytes"}).as_int());
  }
}

// Checklist item 68, the engine's side: 16 elements a head take 16 or 8 bytes and 4 for scale and bias in place of 32.
TEST(Plan, KeysAndValuesAsCodesTakeLessAndReachTheRun) {
  const auto kv_of = [](const std::string& flags) {
    return MemberOf(JsonOf(Nunspark("plan --json --context 256 " + flags + " " + Demo())), {"parts", "KV"}).as_int();
  };
  const int64_t floats = kv_of("");
  const Json inspected = JsonOf(Nunspark("inspect --json " + Demo()));
  const int64_t head_dim = MemberOf(inspected, {"head_dim"}).as_int();
  ASSERT_EQ(head_dim % 32, 0);
  for (const int64_t bits : {8, 4}) {
    const std::string flags = "--kv-bits " + std::to_string(bits) + " --kv-group-size 32";
    EXPECT_EQ(kv_of(flags), floats * (head_dim * bits / 8 + head_dim / 32 * 4) / (head_dim * 2)) << flags;
    const Json run = JsonOf(Nunspark(kGenerate + flags));
    EXPECT_LT(MemberOf(run, {"memory", "kv_peak_bytes"}).as_int(),
              MemberOf(JsonOf(Nunspark(kGenerate)), {"memory", "kv_peak_bytes"}).as_int());
    EXPECT_EQ(MemberOf(run, {"memory", "kv_format"}).as_string(), bits == 8 ? "kv8-g32" : "kv4-g32");
  }
  EXPECT_NE(Nunspark("plan " + Demo() + " --kv-bits 4").out.find("kv4-g64"), std::string::npos);
  ExpectError(Nunspark(kGenerate + "--kv-bits 5"), {"--kv-bits", "4 or 8", "5"});
  ExpectError(Nunspark(kGenerate + "--kv-bits 8 --kv-group-size 48"), {"--kv-group-size", "32, 64 or 128", "48"});
}

// Those of layers without a window do, and they are what is left of the growth.
TEST(Plan, KeysAndValuesOfWindowsDoNotGrowWithTheContext) {
  const TempFolder temp;
  for (const char* name : {"mistral_sliding", "gemma3_text"}) {
    const std::string folder = temp.path() + "/" + name;
    ASSERT_EQ(RunShell("cp -r " + DataPath("goldens/") + name + " " + folder +
                           " && sed -i 's/\"max_position_embeddings\": 256/\"max_position_embeddings\": 1048576/' " +
                           folder + "/config.json",
                       nullptr),
              0);
    const auto kv_of = [&](int64_t context) {
      const std::string flags = "plan --json --prefill-chunk 128 --context " + std::to_string(context) + " ";
      return MemberOf(JsonOf(Nunspark(flags + folder)), {"parts", "KV"}).as_int();
    };
    const std::unique_ptr<ModelFilesImpl> files = ModelFilesImpl::OpenFolder(folder).value();
    int64_t growing = 0;  // bytes of a position
    for (const LayerShape& layer : files->layout().hparams.layer) {
      growing += layer.window == 0 ? layer.kv_heads * layer.head_dim * 4 : 0;
    }
    EXPECT_EQ(kv_of(131072) - kv_of(65536), growing * 65536) << name;
    EXPECT_LT(kv_of(65536), growing * 65536 + 200'000) << name;
  }
}

TEST(Memory, OfTheWholeProcessIsKept) {
  const Json full = JsonOf(Nunspark("plan --json --context 64 " + Demo()));
  const int64_t most = MemberOf(full, {"total_bytes"}).as_int();
  const std::string allowed = std::to_string(most - 2'000'000);
  const Json run = JsonOf(Nunspark(kGenerate + "--memory " + allowed));
  EXPECT_LE(MemberOf(run, {"memory", "plan_bytes"}).as_int(), most - 2'000'000);
  EXPECT_LE(MemberOf(run, {"memory", "peak_bytes"}).as_int(), MemberOf(run, {"memory", "plan_bytes"}).as_int());
  EXPECT_LT(MemberOf(run, {"memory", "budget_bytes"}).as_int(), MemberOf(full, {"budget_bytes"}).as_int());
  for (const std::string& verb : std::initializer_list<std::string>{"inspect " + Demo(), kGenerate, "plan " + Demo()}) {
    ExpectError(Nunspark(verb + " --memory 1MB --budget 1GB"), {"--memory", "--budget", "one of them"});
  }
}

TEST(Memory, TooLittleIsRefusedWithAValueThatWorks) {
  for (const std::string& verb : {kGenerate, "plan --json " + Demo() + " "}) {
    const Ran refused = Nunspark(verb + "--memory 2MB");
    ExpectError(refused, {"--memory 2.0 MB is below the", "qwen3_moe needs at least"});
    EXPECT_EQ(Nunspark(verb + SuggestedFlag(refused)).code, 0) << SuggestedFlag(refused);
  }
  ExpectError(Nunspark(kGenerate + "--memory 9000TB"), {"--memory 9000.00 TB is more than the", "try --memory"});
}

// Two engines of one memory limit with automatic budgets, as they are on one machine: the second one plans with what
// the first has not even touched yet, or refuses.
TEST(Memory, TwoEnginesTogetherStayBelowTheLimit) {
  if (SharedPath("").empty()) GTEST_SKIP() << "full reference set not present";
  if (geteuid() != 0) GTEST_SKIP() << "needs root to make a memory limit";
#ifdef NUNSPARK_SANITIZED
  GTEST_SKIP() << "a sanitizer's own memory does not fit the limit";
#endif
  constexpr int64_t kLimit = 300'000'000;
  const TempFolder temp;
  // The first plans much for keys and values, and touches none of it.
  const std::string script = temp.path() + "/script";
  const std::string head = "cd " + temp.path() + "\nnunspark=" + kBinary + " model=" + Demo();
  ASSERT_TRUE(WriteFileAtomically(script, head + R"(
serve() { exec timeout 60 $nunspark serve --no-warm-start --port 0 --context 512 --parallel 64 $model; }
$nunspark plan --json --context 512 --parallel 64 $model >first || exit 3
(serve) 2>log &
for i in $(seq 3000); do grep -q Serving log && break; sleep 0.01; done
$nunspark plan --json --context 512 $model >small; echo $? >small.code
(serve) 2>large; echo $? >large.code
kill $!
wait
)")
                  .ok());
  std::string out, err;
  ASSERT_EQ(RunShell("timeout 120 " + SharedPath("rig/limit") + " --mem " + std::to_string(kLimit) + " -- sh " + script,
                     &out, &err),
            0)
      << err;
  const auto text_of = [&](const std::string& name) { return ReadWholeFile(temp.path() + "/" + name).value(); };
  const int64_t first = MemberOf(ParseJson(text_of("first"), "first").value(), {"total_bytes"}).as_int();
  EXPECT_GT(first, kLimit / 2);
  EXPECT_EQ(text_of("small.code"), "0\n") << text_of("small");
  const Json small = ParseJson(text_of("small"), "small").value();
  EXPECT_EQ(MemberOf(small, {"ceiling_bound"}).as_string(), "cgroup");
  EXPECT_LE(MemberOf(small, {"total_bytes"}).as_int() + first, kLimit);
  EXPECT_EQ(text_of("large.code"), "1\n");
  EXPECT_NE(text_of("large").find("the cgroup limit less what others in the group hold"), std::string::npos)
      << text_of("large");
}

TEST(Doctor, FindsNothingThatPreventsRunningAModelThatRuns) {
  const Json report = JsonOf(Nunspark("doctor --json " + Demo()));
  std::vector<std::string> topics;
  const Json findings = MemberOf(report, {"findings"});
  for (const Json& finding : findings.as_array()) {
    topics.push_back(MemberOf(finding, {"topic"}).as_string());
    EXPECT_NE(MemberOf(finding, {"remedy"}).as_string(), "") << topics.back();
    EXPECT_NE(MemberOf(finding, {"level"}).as_string(), "problem") << topics.back();
  }
  for (const char* topic : {"processor", "CPUs", "clock", "heat", "memory", "group limit", "huge pages", "swap",
                            "locked memory", "file system", "reads", "drive", "model"}) {
    EXPECT_NE(std::find(topics.begin(), topics.end(), topic), topics.end()) << topic;
  }
  EXPECT_GT(MemberOf(report, {"drive", "best", "bytes_per_s"}).as_double(), 0);
}

TEST(Doctor, MeasuresAFolderWithoutAModelAndLeavesNothingThere) {
  const TempFolder temp;
  const Ran ran = Nunspark("doctor " + temp.path());
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("scattered"), std::string::npos) << ran.out;
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
}

TEST(Doctor, WhatPreventsRunningIsAnError) {
  ExpectError(Nunspark("doctor /does/not/exist"), {"/does/not/exist"});
  ExpectError(Nunspark("doctor " + Demo(), "NUNSPARK_ISA=quantum "), {"processor", "quantum"});
  const TempFolder temp;
  EXPECT_EQ(RunShell("cp " + Demo() + "/config.json " + temp.path(), nullptr), 0);
  const Ran broken = Nunspark("doctor " + temp.path());
  ExpectError(broken, {"model"});
  EXPECT_NE(broken.out.find("problem"), std::string::npos) << broken.out;
}

// Passes of one row, so that what a pass keeps does not depend on which read was the first to arrive.
TEST(CacheSim, MissesAreThoseOfTheRunThatWroteTheTrace) {
  const TempFolder temp;
  const std::string trace = temp.path() + "/trace";
  for (const char* budget : {"2.4MB", "3.7MB", "6MB"}) {
    const Json run = JsonOf(Nunspark("generate " + Demo() + " --prompt 'Tell me a story.' --max-tokens 40 --json " +
                                     "--prefill-chunk 1 --no-prefetch --no-lookahead --budget " + budget +
                                     " --expert-trace " + trace));
    const Json simulated =
        JsonOf(Nunspark("bench cache-sim --json --trace " + trace + " --model " + Demo() + " --budget " + budget));
    const Json rows = MemberOf(simulated, {"rows"});
    ASSERT_EQ(rows.as_array().size(), 2U);
    const Json lru = rows.as_array()[0], optimum = rows.as_array()[1];
    EXPECT_EQ(MemberOf(lru, {"policy"}).as_string(), "lru");
    EXPECT_EQ(MemberOf(lru, {"all", "misses"}), MemberOf(run, {"cache", "expert", "misses"})) << budget;
    EXPECT_EQ(MemberOf(lru, {"all", "hits"}), MemberOf(run, {"cache", "expert", "hits"})) << budget;
    EXPECT_LE(MemberOf(optimum, {"all", "misses"}).as_int(), MemberOf(lru, {"all", "misses"}).as_int());
  }
  const Ran text = Nunspark("bench cache-sim --trace " + trace + " --model " + Demo() + " --policy lru");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("misses/token"), std::string::npos) << text.out;
  const Json plan = JsonOf(Nunspark("plan --json --budget 3.7MB --trace " + trace + " " + Demo()));
  EXPECT_GT(MemberOf(plan, {"expected", "expert_hit_rate"}).as_double(), 0);
}

TEST(CacheSim, RefusesWhatItCannotReplay) {
  const TempFolder temp;
  const std::string model = " --model " + Demo();
  ExpectError(Nunspark("bench cache-sim --trace /does/not/exist" + model), {"/does/not/exist"});
  ExpectError(Nunspark("bench cache-sim --trace /dev/null" + model), {"no calls of layers with experts"});
  ExpectError(Nunspark("bench cache-sim --policy mru --trace /dev/null" + model), {"mru", "lru, opt"});
  ExpectError(Nunspark(kGenerate + "--expert-trace " + temp.path() + "/no/such/folder"), {"no/such/folder"});
}

// Checklist item 77.
TEST(Bench, ReportHasTheContractsLayout) {
  const TempFolder temp;
  const Ran ran = Nunspark("bench --quick --budget 3.7MB --out " + temp.path() + "/raw.json " + Demo());
  EXPECT_EQ(ran.code, 0) << ran.err;
  const size_t begin = ran.out.find("----- BEGIN SHAREABLE REPORT -----\n### nunspark bench -- ");
  const size_t end = ran.out.find("----- END SHAREABLE REPORT -----\n");
  ASSERT_EQ(begin, 0U) << ran.out;
  ASSERT_NE(end, std::string::npos) << ran.out;
  EXPECT_TRUE(std::regex_search(ran.out, std::regex("\\| prose \\| greedy \\| \\d+\\.\\d\\d \\| \u2014 \\| "
                                                    "\\d+\\.\\d \\| \\d+ \\| \\d+\\.\\d\\d \\|\n")))
      << ran.out;
  EXPECT_TRUE(std::regex_search(ran.out, std::regex("settings: budget=0\\.00GB, max_tokens<=\\d+, speculative=off")));
  const Json raw = ParseJson(ReadWholeFile(temp.path() + "/raw.json").value(), "raw").value();
  for (const char* field :
       {"packed", "draft", "ngram", "ngram_adaptive", "draft_tokens", "max_tokens", "budget_bytes", "lookahead"}) {
    EXPECT_NE(MemberOf(raw, {"meta"}).Find(field), nullptr) << field;
  }
  const Json runs = MemberOf(raw, {"runs"});
  ASSERT_EQ(runs.as_array().size(), 1U);
  for (const char* field :
       {"label", "mode", "prompt_tokens", "tokens_generated", "decode_tokens", "wall_time_prefill_s",
        "wall_time_decode_s", "wall_time_total_s", "tok_s_decode", "peak_memory_gb", "cache_stats", "prefetch_stats",
        "bytes_loaded_total", "bytes_per_token", "budget_bytes", "has_experts", "expert_hit_pct"}) {
    EXPECT_NE(runs.as_array()[0].Find(field), nullptr) << field;
  }
  EXPECT_LE(MemberOf(runs.as_array()[0], {"tokens_generated"}).as_int(), 50);
}

TEST(Bench, DraftsAreASecondRunOfEachWorkload) {
  const TempFolder temp;
  const std::string out = temp.path() + "/raw.json";
  for (const std::string& flags :
       {std::string("--ngram"), "--draft " + ModelPath("demo-draft-4bit") + " --draft-tokens 4"}) {
    const Ran ran = Nunspark("bench --max-tokens 30 " + flags + " --out " + out + " " + Demo());
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_TRUE(std::regex_search(ran.out, std::regex("speculative=on, K=\\d+"))) << ran.out;
    const std::string mode = flags == "--ngram" ? "ngram-spec" : "spec";
    EXPECT_TRUE(
        std::regex_search(ran.out, std::regex("\\| code \\| " + mode + " \\| \\d+\\.\\d\\d \\| \\d\\.\\d\\d \\| ")))
        << ran.out;
    const Json raw = ParseJson(ReadWholeFile(out).value(), "raw").value();
    const Json runs = MemberOf(raw, {"runs"});
    ASSERT_EQ(runs.as_array().size(), 6U);
    for (const char* field :
         {"target_passes", "tokens_emitted", "draft_tokens_proposed", "accepted_total", "accepted_offpath",
          "multiplier", "deviation_rate", "draft_tokens_per_sweep", "near_tie_rows"}) {
      EXPECT_NE(MemberOf(runs.as_array()[1], {"spec_stats"}).Find(field), nullptr) << field;
    }
    EXPECT_EQ(MemberOf(runs.as_array()[1], {"spec_stats"}).Find("probes") != nullptr, flags == "--ngram");
  }
  EXPECT_EQ(Nunspark("bench --max-tokens 4 --ngram --no-spec " + Demo()).out.find("ngram-spec"), std::string::npos);
}

TEST(Bench, AMissingModelIsNamed) { ExpectError(Nunspark("bench"), {"mlx-community/Qwen3-30B-A3B-4bit"}); }

}  // namespace
}  // namespace nunspark::test
