// The promise "exact": the same logits, bit for bit, whatever the budget, drive, threads, chunks, layout or instruction
// set.

#include <cstdlib>

#include "base/sanitized_testing.h"
#include "base/thread_pool.h"
#include "engine/model_files.h"
#include "integration/support.h"
#include "io/file.h"
#include "io/read_queue.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "weights/piece_cache.h"
#include "weights/piece_index.h"

namespace nunspark::test {
namespace {

constexpr int kGreedySteps = 6;

// Prompt logits and those of a few decode steps, as bytes to compare.
struct Output {
  std::vector<float> prompt;
  std::vector<int32_t> greedy;
  std::vector<std::vector<float>> steps;
  KvStats kv;
};

constexpr int kPromptTokens = 90, kLongPromptTokens = 210, kGeneratedTokens = 38;

std::vector<int32_t> PromptOf(int64_t vocab_size, int tokens = kPromptTokens) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < tokens; ++i) prompt.push_back(static_cast<int32_t>((i * 7919 + 13) % vocab_size));
  return prompt;
}

Output RunModel(const std::string& folder, EngineOptions options, int prompt_tokens = kPromptTokens) {
  Output output;
  options.context = prompt_tokens + kGeneratedTokens;
  Runner runner = Runner::Open(folder, options);
  if (runner.session == nullptr) return output;
  output.prompt = runner.Logits(PromptOf(runner.files->vocab_size(), prompt_tokens));
  const size_t vocab = static_cast<size_t>(runner.files->vocab_size());
  runner.Greedy({output.prompt.end() - static_cast<ptrdiff_t>(vocab), output.prompt.end()}, kGreedySteps,
                &output.greedy, nullptr, &output.steps);
  // Checklist item 23: what is resident stays within the budget.
  EXPECT_LE(runner.engine->stats().cache.resident_peak_bytes, runner.engine->plan().budget);
  output.kv = runner.engine->stats().kv;
  EXPECT_LE(output.kv.resident_peak_bytes, runner.engine->plan().kv);
  return output;
}

void ExpectSame(const Output& found, const Output& want, const std::string& what) {
  EXPECT_FALSE(want.prompt.empty());
  EXPECT_TRUE(SameBits(found.prompt, want.prompt)) << what;
  EXPECT_EQ(found.greedy, want.greedy) << what;
  ASSERT_EQ(found.steps.size(), want.steps.size()) << what;
  for (size_t i = 0; i < want.steps.size(); ++i)
    EXPECT_TRUE(SameBits(found.steps[i], want.steps[i])) << what << ", step " << i;
}

// Logits straight from a source that holds everything, without engine, cache or budget, and with keys and values of all
// positions.
std::vector<float> ResidentLogits(const std::string& folder, int prompt_tokens = kPromptTokens) {
  const std::unique_ptr<ModelFilesImpl> files = ModelFilesImpl::OpenFolder(folder).value();
  const PieceIndex index = PieceIndex::Build(files->layout(), files->checkpoint().tensors);
  std::unique_ptr<ReadQueue> queue = OpenReadQueue(index.paths(), {.direct = false}).value();
  const std::unique_ptr<WeightSource> source = CreateResidentSource(files->layout(), index, std::move(queue)).value();
  const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(1).value();
  const std::unique_ptr<Model> model = Model::Create(files->layout(), *pool, prompt_tokens, kDefaultNumerics).value();
  const std::unique_ptr<KvPool> kv = KvPool::Create(Model::KvShapes(files->layout().hparams), prompt_tokens).value();
  KvSequence sequence(*kv);
  const std::vector<int32_t> prompt = PromptOf(files->vocab_size(), prompt_tokens);
  EXPECT_TRUE(sequence.Reserve(static_cast<int64_t>(prompt.size())).ok());
  Batch batch{.rows = {}, .sequences = {&sequence}, .logit_rows = {}};
  for (int32_t i = 0; i < static_cast<int32_t>(prompt.size()); ++i) {
    batch.rows.push_back({.token = prompt[static_cast<size_t>(i)],
                          .position = i,
                          .sequence = 0,
                          .rope_length = static_cast<int32_t>(prompt.size())});
    batch.logit_rows.push_back(i);
  }
  std::vector<float> logits;
  const size_t vocab = static_cast<size_t>(files->vocab_size());
  EXPECT_TRUE(model
                  ->Forward(batch, *source,
                            [&](const HeadRows& head) {
                              logits.insert(logits.end(), head.logits,
                                            head.logits + static_cast<size_t>(head.count) * vocab);
                              return Status();
                            })
                  .ok());
  return logits;
}

class Gates : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = FolderOf(GetParam());
    base_ = RunModel(folder_, {.threads = 1});
  }

  std::string folder_;
  Output base_;
};

// Checklist items 11, 13, 16, 18 and 23.
TEST_P(Gates, EveryBudgetFromTheFloorGivesTheSameBitsAsEverythingResident) {
  EXPECT_TRUE(SameBits(ResidentLogits(folder_), base_.prompt)) << "resident";
  int64_t floor = 0, all = 0;
  {
    const Runner runner = Runner::Open(folder_, {.context = 128});
    ASSERT_TRUE(runner.engine != nullptr);
    floor = runner.engine->plan().floor;
    all = runner.engine->plan().budget;  // an ample budget is cut down to what the model needs
  }
  ASSERT_LE(floor, all);
  constexpr int kSteps = 6;
  for (int step = 0; step <= kSteps; ++step) {
    const int64_t budget = floor + (all - floor) * step / kSteps;
    ExpectSame(RunModel(folder_, {.budget_bytes = budget}), base_, "budget " + std::to_string(budget));
  }
  for (const double fraction : {0.0, 0.5, 1.0}) {
    ExpectSame(RunModel(folder_, {.budget_bytes = (floor + all) / 2, .expert_cache_fraction = fraction}), base_,
               "expert share " + std::to_string(fraction));
  }
  const std::unique_ptr<ModelFiles> files = ModelFiles::Open(folder_).value();
  const Result<std::unique_ptr<Engine>> refused = Engine::Start(*files, {.budget_bytes = floor - 1, .context = 128});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("below the floor"), std::string::npos) << refused.status().message();
}

TEST_P(Gates, DriveThreadsAndPrefetchLeaveNoTrace) {
  ExpectSame(RunModel(folder_, {.threads = 2}), base_, "2 threads");
  ExpectSame(RunModel(folder_, {.threads = 3}), base_, "3 threads");
  ExpectSame(RunModel(folder_, {.prefetch = false}), base_, "no prefetch");
  ExpectSame(RunModel(folder_, {.io = IoChoice::kPread}), base_, "pread");
  ExpectSame(RunModel(folder_, {.io = IoChoice::kPread, .direct_io = false}), base_, "pread through the page cache");
  ExpectSame(RunModel(folder_, {.direct_io = false}), base_, "through the page cache");
}

// The first run leaves a file that the second one begins with, while its prompt is already computed.
TEST_P(Gates, AWarmStartLeavesNoTrace) {
  const TempFolder temp;
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", temp.path().c_str(), 1), 0);
  int64_t floor = 0;
  {
    const Runner runner = Runner::Open(folder_, {.context = 128});
    ASSERT_TRUE(runner.engine != nullptr);
    floor = runner.engine->plan().floor;
  }
  for (const int run : {1, 2}) {
    ExpectSame(RunModel(folder_, {.budget_bytes = floor, .warm_start = true}), base_, "run " + std::to_string(run));
  }
  ExpectSame(RunModel(folder_, {.warm_start = true}), base_, "with more memory");
  ::unsetenv("XDG_CACHE_HOME");
}

// Checklist items 14 and 21: prompts are longer than the windows of models that have them.
TEST_P(Gates, PromptChunksLeaveNoTrace) {
  for (const int32_t chunk : {1, 7, 64, 90}) {
    ExpectSame(RunModel(folder_, {.prefill_chunk = chunk}), base_, "chunk " + std::to_string(chunk));
  }
}

// Far past the windows, whose oldest blocks are given back and used again.
TEST_P(Gates, ChunksOfALongPromptLeaveNoTrace) {
  const Output base = RunModel(folder_, {.prefill_chunk = kLongPromptTokens}, kLongPromptTokens);
  EXPECT_TRUE(SameBits(ResidentLogits(folder_, kLongPromptTokens), base.prompt)) << "all positions kept";
  for (const int32_t chunk : {1, 7, 64}) {
    ExpectSame(RunModel(folder_, {.prefill_chunk = chunk}, kLongPromptTokens), base, "chunk " + std::to_string(chunk));
  }
}

// Checklist item 47, and 40 to 44 for the kinds of keys and values that models have.
TEST_P(Gates, AKvBudgetLeavesNoTrace) {
  EXPECT_EQ(base_.kv.misses, 0);
  EXPECT_EQ(base_.kv.spilled_bytes, 0);
  const Output one_byte = RunModel(folder_, {.kv_budget_bytes = 1});
  ExpectSame(one_byte, base_, "1 byte");
  EXPECT_GT(one_byte.kv.reloaded_bytes, 0);
  const int64_t half = base_.kv.resident_peak_bytes / 2;
  ExpectSame(RunModel(folder_, {.kv_budget_bytes = half}), base_, "half");
  const Output unread = RunModel(folder_, {.kv_budget_bytes = half, .prefetch = false});
  ExpectSame(unread, base_, "half, nothing read ahead");
  EXPECT_LE(unread.kv.reloaded_bytes, one_byte.kv.reloaded_bytes);
  ExpectSame(RunModel(folder_, {.prefill_chunk = 7, .kv_budget_bytes = 1, .io = IoChoice::kPread, .direct_io = false}),
             base_, "1 byte, chunk 7, through the page cache");
}

// The default is what all other gates run with.
TEST_P(Gates, TheOtherNumericsKeepThePromisesToo) {
  for (const Numerics numerics : {Numerics::kF32, Numerics::kI8}) {
    const Output base = RunModel(folder_, {.threads = 1, .numerics = numerics});
    for (const int32_t chunk : {1, 7}) {
      ExpectSame(RunModel(folder_, {.prefill_chunk = chunk, .threads = 3, .numerics = numerics}), base,
                 "chunk " + std::to_string(chunk));
    }
  }
}

// Layers with a window keep floats, so where all have one the flag changes nothing.
TEST_P(Gates, KeysAndValuesAsCodesKeepThePromisesToo) {
  const std::unique_ptr<ModelFilesImpl> files = ModelFilesImpl::OpenFolder(folder_).value();
  if (files->model_type() == "gpt_oss" || files->model_type() == "youtu_llm") {
    const Result<std::unique_ptr<Engine>> refused = Engine::Start(*files, {.context = 128, .kv_bits = 8});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("--kv-bits"), std::string::npos) << refused.status().message();
    EXPECT_NE(refused.status().message().find(files->model_type()), std::string::npos) << refused.status().message();
    EXPECT_NE(refused.status().message().find("drop the flag"), std::string::npos) << refused.status().message();
    return;
  }
  const std::vector<LayerShape>& layers = files->layout().hparams.layer;
  const bool all_windows = std::all_of(layers.begin(), layers.end(), [](const LayerShape& l) { return l.window > 0; });
  const TempFolder temp;
  for (const int32_t bits : {8, 4}) {
    const EngineOptions codes{.threads = 1, .kv_bits = bits, .kv_group_size = 32};
    const std::string name = std::to_string(bits) + " bits, ";
    const Output base = RunModel(folder_, codes);
    EXPECT_EQ(SameBits(base.prompt, base_.prompt), all_windows) << name;
    EngineOptions options = codes;
    {
      options.context = 128;
      const Runner runner = Runner::Open(folder_, options);
      ASSERT_TRUE(runner.engine != nullptr);
      options.budget_bytes = runner.engine->plan().floor;
    }
    ExpectSame(RunModel(folder_, options), base, name + "floor");
    for (const int32_t chunk : {1, 7, 64}) {
      options = codes;
      options.prefill_chunk = chunk;
      options.threads = 3;
      ExpectSame(RunModel(folder_, options), base, name + "chunk " + std::to_string(chunk));
    }
    for (const KernelTable* table : {AvailableKernels().front(), AvailableKernels().back()}) {
      std::string out = temp.path() + "/" + table->name + std::to_string(bits), ids, err;
      for (const int32_t id : PromptOf(files->vocab_size())) ids += std::to_string(id) + ",";
      ASSERT_EQ(RunShell(std::string("NUNSPARK_ISA=") + table->name + " " + NUNSPARK_BINARY + " logits " + folder_ +
                             " --kv-bits " + std::to_string(bits) + " --kv-group-size 32 --prompt-ids " + ids +
                             " --greedy " + std::to_string(kGreedySteps) + " --out " + out,
                         nullptr, &err),
                0)
          << err;
      EXPECT_TRUE(SameBits(ReadF32(out, "logits"), base.prompt)) << name << table->name;
      EXPECT_EQ(ReadI32(out, "greedy"), base.greedy) << name << table->name;
    }
  }
}

// Checklist items 8, 9, 12 (their folders are among the models) and 72.
TEST_P(Gates, PackedGivesTheSameBitsAsUnpacked) {
  const TempFolder temp;
  const std::string pack = temp.path() + "/pack";
  std::string err;
  ASSERT_EQ(RunShell(std::string(NUNSPARK_BINARY) + " pack " + folder_ + " " + pack, nullptr, &err), 0) << err;
  EXPECT_NE(err.find("packed "), std::string::npos);
  ExpectSame(RunModel(pack, {}), base_, "pack");
  int64_t floor = 0;
  {
    const Runner runner = Runner::Open(pack, {.context = 128});
    ASSERT_TRUE(runner.engine != nullptr);
    floor = runner.engine->plan().floor;
  }
  ExpectSame(RunModel(pack, {.budget_bytes = floor}), base_, "pack at the floor");
  ExpectSame(RunModel(pack, {.budget_bytes = floor, .io = IoChoice::kPread, .direct_io = false}), base_,
             "pack at the floor, pread");
}

// The kernel table is chosen once a process, so each runs in its own.
TEST_P(Gates, EveryInstructionSetGivesTheSameBits) {
  const TempFolder temp;
  std::string ids;
  for (const int32_t id : PromptOf(Runner::Open(folder_, {.context = 128}).files->vocab_size()))
    ids += std::to_string(id) + ",";
  for (const Numerics numerics : {Numerics::kF32, Numerics::kI16, Numerics::kI8}) {
    const std::string name(NumericsName(numerics));
    const Output base = numerics == kDefaultNumerics ? base_ : RunModel(folder_, {.threads = 1, .numerics = numerics});
    for (const KernelTable* table : AvailableKernels()) {
      const std::string out = temp.path() + "/" + table->name + name + ".safetensors";
      std::string err;
      ASSERT_EQ(RunShell(std::string("NUNSPARK_ISA=") + table->name + " " + NUNSPARK_BINARY + " logits " + folder_ +
                             " --numerics " + name + " --prompt-ids " + ids + " --greedy " +
                             std::to_string(kGreedySteps) + " --out " + out,
                         nullptr, &err),
                0)
          << err;
      EXPECT_TRUE(SameBits(ReadF32(out, "logits"), base.prompt)) << table->name << " " << name;
      EXPECT_EQ(ReadI32(out, "greedy"), base.greedy) << table->name << " " << name;
    }
  }
  std::string err;
  EXPECT_EQ(RunShell(std::string("NUNSPARK_ISA=mmx ") + NUNSPARK_BINARY + " logits " + folder_ +
                         " --prompt-ids 1 --out " + temp.path() + "/x",
                     nullptr, &err),
            1);
  EXPECT_NE(err.find("mmx"), std::string::npos) << err;
}

std::vector<std::string> Folders() {
#ifdef NUNSPARK_SANITIZED
  // Slow there: one model of every attention and feed-forward kind, and each way of storing a matrix.
  return {"demo-draft-4bit",  "gemma4_e_mm_4bit", "gemma4_text_moe", "glm4",      "gpt_oss",
          "gpt_oss_hf_mxfp4", "llama_awq_4bit",   "llama_mixed",     "qwen3_moe", "youtu_llm"};
#endif
  std::vector<std::string> names = GoldenNames();
  names.insert(names.begin(), {"demo-moe-4bit", "demo-draft-4bit"});
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, Gates, testing::ValuesIn(Folders()), CaseName);

}  // namespace
}  // namespace nunspark::test
