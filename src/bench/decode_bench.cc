// Speed of generating with a model whose weights are in memory, over the public interface. tools/bench_decode runs it
// on synthetic checkpoints beside a peer and checks what it says.
//
// usage: nunspark_decode_bench [MODEL] [--ids FILE]... [--tokens N] [--threads T] [--numerics X] [--json]
//                              [--recall R]
//        nunspark_decode_bench --busy SECONDS [--threads T]
//
// One prompt per --ids file (token ids); several run together. Without: the demo model and a prompt made up here. The
// run is done twice: the first reads the weights and is not measured. Where they do not all fit, they are streamed
// without lookahead, or with --recall as usual, while all but that share (0 to 1) of the predictions are replaced by
// wrong ones. --busy: how much T independent threads compute, as a reference for what the system's scheduler gives to a
// program.
//
// Standard output: a line per figure, name, value and unit separated by tabs; with --json one object, whose names are
// those of the peer's program.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/cpu_count.h"
#include "base/json.h"
#include "bench/machine_limits.h"
#include "kernels/numerics.h"
#include "nunspark/engine.h"

namespace nunspark::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMadeUpPrompt = 64;

struct Options {
  std::string model = NUNSPARK_SOURCE_DIR "/models/demo-moe-4bit";
  std::vector<std::string> ids_files;
  int32_t tokens = 64;
  double busy_s = 0;
  EngineOptions engine{.kv = KvType::kF16};
  bool json = false;
};

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "Error: %s\n", message.c_str());
  std::exit(1);
}

template <typename T>
T OrFail(Result<T> result) {
  if (!result.ok()) Fail(result.status().message());
  return std::move(result).value();
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  bool predicts = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--json") {
      options.json = true;
      continue;
    }
    if (!flag.starts_with("--")) {
      options.model = flag;
      continue;
    }
    if (i + 1 == argc) Fail(fmt::format("{}: unknown, or its value is missing", flag));
    const std::string value = argv[++i];
    if (flag == "--ids") {
      options.ids_files.push_back(value);
    } else if (flag == "--tokens") {
      options.tokens = std::atoi(value.c_str());
    } else if (flag == "--threads") {
      options.engine.threads = std::atoi(value.c_str());
    } else if (flag == "--numerics") {
      const std::optional<Numerics> numerics = FindNumerics(value);
      if (!numerics) Fail(fmt::format("--numerics {} is not f32, i16 or i8", value));
      options.engine.numerics = *numerics;
    } else if (flag == "--recall") {
      options.engine.prediction_recall = std::atof(value.c_str());
      predicts = true;
    } else if (flag == "--busy") {
      options.busy_s = std::atof(value.c_str());
    } else {
      Fail(fmt::format("unknown flag {}", flag));
    }
  }
  if (!predicts) options.engine.lookahead = Governed::kOff;
  if (options.tokens < 4) Fail("--tokens must be at least 4, so that there is a second half to measure");
  return options;
}

// Ids separated by commas, white space or line ends.
std::vector<int32_t> ReadIds(const std::string& path) {
  std::ifstream file(path);
  if (!file) Fail(fmt::format("{} cannot be read", path));
  std::vector<int32_t> ids;
  int32_t id = 0;
  while (file >> id) {
    ids.push_back(id);
    while (file.peek() == ',' || file.peek() == ' ' || file.peek() == '\n') file.get();
  }
  if (!file.eof() || ids.empty()) Fail(fmt::format("{} does not hold token ids separated by commas", path));
  return ids;
}

std::vector<std::vector<int32_t>> Prompts(const Options& options, int64_t vocab_size) {
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& file : options.ids_files) prompts.push_back(ReadIds(file));
  if (!prompts.empty()) return prompts;
  prompts.emplace_back();
  for (int i = 0; i < kMadeUpPrompt; ++i) prompts.back().push_back(static_cast<int32_t>((i * 7919 + 13) % vocab_size));
  return prompts;
}

// Runs before the one that counts: until one reads hardly more than rows of the embedding.
constexpr int kMostFirstRuns = 6;
constexpr int64_t kFewBytes = 16 << 20;

// One run over all prompts: what came and when.
struct Run {
  Clock::time_point start;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<double>> times;  // of each token, in seconds from the start
  int64_t bytes_read = 0;
};

Run RunOnce(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, int32_t tokens) {
  const GenerateOptions options{.max_tokens = tokens, .sampling = {}, .ignore_eos = true};
  const int64_t bytes_before = engine.stats().cache.bytes_read();
  Run run;
  run.tokens.resize(prompts.size());
  run.times.resize(prompts.size());
  const auto on_token = [&run](int32_t index, int32_t token) {
    run.tokens[static_cast<size_t>(index)].push_back(token);
    run.times[static_cast<size_t>(index)].push_back(std::chrono::duration<double>(Clock::now() - run.start).count());
    return true;
  };
  if (prompts.size() == 1) {
    const std::unique_ptr<Session> session = OrFail(engine.NewSession());
    run.start = Clock::now();
    (void)OrFail(session->Generate(prompts[0], options, [&](int32_t token) { return on_token(0, token); }));
  } else {
    const std::unique_ptr<Scheduler> scheduler = OrFail(engine.NewScheduler({.step_target_s = 0}));
    std::latch left(std::ssize(prompts));
    run.start = Clock::now();
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto token = [&on_token, i](const GeneratedToken& generated) {
        return on_token(static_cast<int32_t>(i), generated.token);
      };
      const auto end = [&left](Result<GenerateResult> result) {
        (void)OrFail(std::move(result));
        left.count_down();
      };
      (void)OrFail(scheduler->Submit({.prompt = prompts[i], .options = options}, {.on_token = token, .on_end = end}));
    }
    left.wait();
  }
  run.bytes_read = engine.stats().cache.bytes_read() - bytes_before;
  return run;
}

// Tokens a second between the first and the last of `times` from `begin` on.
double Rate(const std::vector<double>& times, size_t begin) {
  const double seconds = times.back() - times[begin];
  return seconds > 0 ? static_cast<double>(times.size() - 1 - begin) / seconds : 0;
}

struct Figures {
  double first_token_s = 0;                           // until every sequence had one
  double prompt_tps = 0;                              // of all prompts
  double decode_tps = 0, decode_tps_second_half = 0;  // one sequence
  double decode_tps_together = 0;                     // all tokens while every sequence was being decoded
};

Figures FiguresOf(const Run& run, const std::vector<std::vector<int32_t>>& prompts) {
  Figures f;
  double prompt_tokens = 0, first_end = run.times[0].back();
  for (size_t i = 0; i < prompts.size(); ++i) {
    prompt_tokens += static_cast<double>(prompts[i].size());
    f.first_token_s = std::max(f.first_token_s, run.times[i].front());
    first_end = std::min(first_end, run.times[i].back());
  }
  f.prompt_tps = prompt_tokens / f.first_token_s;
  f.decode_tps = Rate(run.times[0], 0);
  f.decode_tps_second_half = Rate(run.times[0], run.times[0].size() / 2);
  int64_t inside = 0;
  for (const std::vector<double>& times : run.times) {
    inside +=
        std::count_if(times.begin(), times.end(), [&](double t) { return t > f.first_token_s && t <= first_end; });
  }
  if (first_end > f.first_token_s) f.decode_tps_together = static_cast<double>(inside) / (first_end - f.first_token_s);
  return f;
}

Json TokensJson(const std::vector<std::vector<int32_t>>& tokens) {
  Json::Array sequences;
  for (const std::vector<int32_t>& sequence : tokens) {
    Json::Array ids;
    for (const int32_t id : sequence) ids.emplace_back(int64_t{id});
    sequences.emplace_back(std::move(ids));
  }
  return sequences;
}

int Generate(Options options) {
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<ModelFiles> files = OrFail(ModelFiles::Open(options.model));
  const std::vector<std::vector<int32_t>> prompts = Prompts(options, files->vocab_size());
  size_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) longest = std::max(longest, prompt.size());
  options.engine.context = static_cast<int64_t>(longest) + options.tokens;
  options.engine.max_sequences = static_cast<int32_t>(prompts.size());
  const std::unique_ptr<Engine> engine = OrFail(Engine::Start(*files, options.engine));
  // A prompt also reads ahead experts that it then does not use, others each time, until every one is in memory.
  for (int i = 0; i < kMostFirstRuns && RunOnce(*engine, prompts, options.tokens).bytes_read > kFewBytes; ++i) {
  }
  const double load_s = std::chrono::duration<double>(Clock::now() - start).count();

  const Run run = RunOnce(*engine, prompts, options.tokens);
  const Figures f = FiguresOf(run, prompts);
  if (!options.json) {
    std::printf("prompt\t%.4g\ttokens/s\n", f.prompt_tps);
    std::printf("decode\t%.4g\ttokens/s\n", prompts.size() == 1 ? f.decode_tps_second_half : f.decode_tps_together);
    return 0;
  }
  const bool one = prompts.size() == 1;
  const Json report(Json::Object{{"engine", "nunspark"},
                                 {"isa", std::string(engine->isa())},
                                 {"threads", engine->threads()},
                                 {"numerics", std::string(engine->numerics())},
                                 {"load_s", load_s},
                                 {"sequences", static_cast<int64_t>(prompts.size())},
                                 {"prompt", static_cast<int64_t>(prompts[0].size())},
                                 {"gen", int64_t{options.tokens}},
                                 {"first_token_s", f.first_token_s},
                                 {"prompt_tps", f.prompt_tps},
                                 {"decode_tps", f.decode_tps},
                                 {"decode_tps_second_half", f.decode_tps_second_half},
                                 {"decode_tps_together", one ? Json() : Json(f.decode_tps_together)},
                                 {"bytes_read", run.bytes_read},
                                 {"process_peak_bytes", engine->stats().process_peak_bytes},
                                 {"tokens", TokensJson(run.tokens)}});
  std::puts(WriteJson(report).c_str());
  return 0;
}

// Each thread computes by itself, in registers, until the time is over.
int Busy(const Options& options) {
  const int threads = options.engine.threads > 0 ? options.engine.threads : DefaultThreads();
  std::atomic<int64_t> done{0};
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.busy_s));
  const double seconds = OnThreads(threads, Placement::kFree, [&](int) {
    constexpr int kSlice = 100'000;
    uint64_t x = 1;
    int64_t slices = 0;
    for (; Clock::now() < end; ++slices) {
      for (int i = 0; i < kSlice; ++i) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(x));
      }
    }
    done += slices * kSlice;
  });
  const double rate = static_cast<double>(done) / seconds / 1e6;
  if (options.json) {
    std::puts(WriteJson(Json(Json::Object{{"threads", threads}, {"busy_rate", rate}})).c_str());
  } else {
    std::printf("busy\t%.4g\tM/s\n", rate);
  }
  return 0;
}

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  return options.busy_s > 0 ? Busy(options) : Generate(options);
}

}  // namespace
}  // namespace nunspark::bench

int main(int argc, char** argv) { return nunspark::bench::Main(argc, argv); }
