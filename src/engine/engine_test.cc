#include "nunspark/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <thread>

namespace nunspark {
namespace {

namespace fs = std::filesystem;

std::string Golden(const std::string& name) { return std::string(NUNSPARK_SOURCE_DIR) + "/tests/data/goldens/" + name; }

const std::vector<int32_t> kPrompt = {5, 9, 17, 33, 65, 129, 257, 3};

// Files, engine and session of one model.
struct Running {
  explicit Running(const std::string& folder, EngineOptions options = {}) {
    options.context = 64;
    files = ModelFiles::Open(folder).value();
    engine = Engine::Start(*files, options).value();
    session = engine->NewSession().value();
  }

  Result<GenerateResult> Generate(const TokenCallback& on_token = [](int32_t) { return true; }) {
    return session->Generate(kPrompt, {.max_tokens = 16, .sampling = {}, .ignore_eos = true}, on_token);
  }

  std::unique_ptr<ModelFiles> files;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;
};

TEST(Engine, GeneratesTheSameWithOneAndManyThreads) {
  const std::vector<int32_t> ids = Running(Golden("qwen3_moe"), {.threads = 1}).Generate()->ids;
  EXPECT_EQ(ids.size(), 16u);
  for (const int threads : {2, 4}) EXPECT_EQ(Running(Golden("qwen3_moe"), {.threads = threads}).Generate()->ids, ids);
}

TEST(Engine, OneSessionAtATime) {
  Running running(Golden("llama"));
  EXPECT_EQ(running.engine->NewSession().status().code(), StatusCode::kResourceExhausted);
  running.session.reset();
  EXPECT_TRUE(running.engine->NewSession().ok());
}

TEST(Engine, CancelFromATokenAnotherThreadOrBeforehandEndsOneCall) {
  Running running(Golden("llama"));
  const std::vector<int32_t> all = running.Generate()->ids;

  int seen = 0;
  const Result<GenerateResult> refused = running.Generate([&](int32_t) { return ++seen < 3; });
  EXPECT_EQ(refused->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(refused->ids, std::vector<int32_t>(all.begin(), all.begin() + 3));

  seen = 0;
  const Result<GenerateResult> inside = running.Generate([&](int32_t) {
    if (++seen == 2) std::thread([&] { running.session->Cancel(); }).join();
    return true;
  });
  EXPECT_EQ(inside->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(inside->ids.size(), 2u);

  running.session->Cancel();
  EXPECT_EQ(running.Generate()->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(running.Generate()->ids, all);
}

TEST(Engine, RefusesBadPromptsAndStaysUsable) {
  Running running(Golden("llama"));
  const auto ignore = [](int64_t, int64_t, const float*) { return Status(); };
  EXPECT_EQ(running.session->Logits({}, ignore).code(), StatusCode::kInvalidArgument);
  for (const int32_t bad : {-1, 320, 1 << 30}) {
    const std::vector<int32_t> prompt = {1, bad};
    const Status status = running.session->Logits(prompt, ignore);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(std::to_string(bad)), std::string::npos) << status.message();
  }
  EXPECT_EQ(running.session->Logits(std::vector<int32_t>(65, 1), ignore).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(running.Generate()->ids.size(), 16u);
}

// Files are opened once: what happens to their names afterwards is nobody's business but the next engine's.
TEST(Engine, GoesOnWhenItsFilesAreRemovedOrReplaced) {
  const fs::path folder = fs::path(testing::TempDir()) / "nunspark-engine-replaced";
  fs::remove_all(folder);
  fs::copy(Golden("qwen3_moe"), folder, fs::copy_options::recursive);
  const fs::path weights = folder / "model.safetensors";
  int64_t floor = 0;
  {
    const std::unique_ptr<ModelFiles> files = ModelFiles::Open(folder).value();
    floor = Engine::Start(*files, {.context = 64}).value()->plan().floor;
  }
  // The smallest budget, so that every pass has to read.
  Running running(folder, {.budget_bytes = floor});
  const std::vector<int32_t> want = running.Generate()->ids;
  fs::copy_file(fs::path(Golden("llama")) / "model.safetensors", folder / "other");
  fs::rename(folder / "other", weights);
  EXPECT_EQ(running.Generate()->ids, want) << "replaced";
  EXPECT_FALSE(ModelFiles::Open(folder).ok()) << "another model's weights";
  fs::remove(weights);
  EXPECT_EQ(running.Generate()->ids, want) << "removed";
  EXPECT_FALSE(ModelFiles::Open(folder).ok());
  fs::remove_all(folder);
}

// A drive that fails in the middle of a pass: one clear error, and the engine recovers with the drive.
TEST(Engine, AFailedReadFailsTheRequestAndNothingElse) {
  const fs::path folder = fs::path(testing::TempDir()) / "nunspark-engine-failed-read";
  fs::remove_all(folder);
  fs::copy(Golden("qwen3_moe"), folder, fs::copy_options::recursive);
  const fs::path weights = folder / "model.safetensors";
  const auto bytes = fs::file_size(weights);
  {
    const std::unique_ptr<ModelFiles> files = ModelFiles::Open(folder).value();
    // The smallest budget, so that every pass has to read.
    int64_t floor = 0;
    floor = Engine::Start(*files, {.context = 64}).value()->plan().floor;
    Running running(folder, {.budget_bytes = floor});
    const std::vector<int32_t> want = running.Generate()->ids;
    fs::resize_file(weights, bytes / 3);
    const Result<GenerateResult> failed = running.Generate();
    ASSERT_FALSE(failed.ok());
    EXPECT_NE(failed.status().message().find("model.safetensors"), std::string::npos) << failed.status().message();
    fs::copy_file(fs::path(Golden("qwen3_moe")) / "model.safetensors", folder / "whole",
                  fs::copy_options::overwrite_existing);
    fs::resize_file(weights, bytes);
    // The same inode gets its bytes back.
    std::FILE* const from = std::fopen((folder / "whole").c_str(), "rb");
    std::FILE* const to = std::fopen(weights.c_str(), "r+b");
    std::vector<char> content(bytes);
    ASSERT_EQ(std::fread(content.data(), 1, bytes, from), bytes);
    ASSERT_EQ(std::fwrite(content.data(), 1, bytes, to), bytes);
    std::fclose(from);
    std::fclose(to);
    EXPECT_EQ(running.Generate()->ids, want);
  }
  fs::remove_all(folder);
}

TEST(Engine, ReadsFromACopyOfTheModelTooAndRefusesAnotherOne) {
  const fs::path copy = fs::path(testing::TempDir()) / "nunspark-engine-mirror";
  fs::remove_all(copy);
  fs::copy(Golden("qwen3_moe"), copy, fs::copy_options::recursive);
  const std::vector<int32_t> want = Running(Golden("qwen3_moe")).Generate()->ids;
  {
    Running running(Golden("qwen3_moe"), {.mirror_dir = copy});
    EXPECT_EQ(running.Generate()->ids, want);
    EXPECT_NE(running.engine->io_description().find("two copies"), std::string::npos);
  }
  fs::resize_file(copy / "model.safetensors", 4096);
  const std::unique_ptr<ModelFiles> files = ModelFiles::Open(Golden("qwen3_moe")).value();
  const Result<std::unique_ptr<Engine>> refused = Engine::Start(*files, {.context = 64, .mirror_dir = copy});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("is no copy of"), std::string::npos) << refused.status().message();
  fs::remove_all(copy);
}

TEST(Engine, CountsPassesLayersAndPageFaults) {
  Running running(Golden("qwen3_moe"));
  ASSERT_TRUE(running.Generate().ok());
  const EngineStats stats = running.engine->stats();
  EXPECT_EQ(stats.cache.prompt.passes, 1);
  EXPECT_EQ(stats.cache.prompt.rows, static_cast<int64_t>(kPrompt.size()));
  EXPECT_EQ(stats.cache.decode.passes, 15);
  EXPECT_GT(stats.minor_page_faults, 0);
  int64_t bytes = 0;
  for (const LayerStats& layer : stats.layers) bytes += layer.bytes_read;
  EXPECT_EQ(bytes, stats.cache.core.bytes_read + stats.cache.dense.bytes_read + stats.cache.expert.bytes_read);
}

TEST(Engine, RefusesOptionsOutOfRangeByName) {
  const std::unique_ptr<ModelFiles> files = ModelFiles::Open(Golden("llama")).value();
  const auto message = [&](EngineOptions options) {
    const Result<std::unique_ptr<Engine>> engine = Engine::Start(*files, options);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? std::string() : engine.status().message();
  };
  EXPECT_NE(message({.context = 0}).find("context"), std::string::npos);
  EXPECT_NE(message({.context = 257}).find("256"), std::string::npos);
  for (const int32_t sequences : {0, 1025}) {
    EXPECT_NE(message({.context = 64, .max_sequences = sequences}).find("from 1 to 1024"), std::string::npos);
  }
  EXPECT_NE(message({.context = 64, .prefill_chunk = 0}).find("prefill chunk"), std::string::npos);
  EXPECT_NE(message({.context = 64, .threads = -1}).find("threads"), std::string::npos);
  EXPECT_NE(message({.expert_cache_fraction = -0.5, .context = 64}).find("expert-cache-frac"), std::string::npos);
  EXPECT_NE(message({.budget_bytes = 1, .context = 64}).find("floor"), std::string::npos);
}

}  // namespace
}  // namespace nunspark
