// Tokenizers: loading, encoding, memory, beside the Python wheel of Hugging Face's `tokenizers` where that is
// installed; and how long hostile templates take to end. docs/measurements/tokenizers.md has the figures.
//
//   nunspark_text_bench [tokenizers|hostile]
//   nunspark_text_bench grammar [TOKENIZER..]      // structured output; docs/measurements/grammar.md has the figures
//
// Times are of the processor, one thread. Ours and the peer's alternate; of each the best of kPasses counts, since
// other work on the machine only ever adds. The peer is whatever `python3` imports: a virtual environment's bin folder
// in front of PATH chooses it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "text/bench_grammar.h"
#include "text/bench_text.h"
#include "text/chat/chat_template.h"
#include "text/chat/hostile_templates.h"
#include "text/tokenizer/text_file.h"
#include "text/tokenizer/tokenizer.h"

namespace nunspark::text {
namespace {

constexpr int kPasses = 3;
constexpr double kMegabyte = 1e6;

void Figure(const std::string& name, double value, std::string_view unit) {
  fmt::print("{}\t{:.4g}\t{}\n", name, value, unit);
  std::fflush(stdout);
}

double ProcessorSeconds() {
  timespec now{};
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename Work>
double Seconds(Work work) {
  const double begin = ProcessorSeconds();
  work();
  return ProcessorSeconds() - begin;
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// By how much a process grows that loads the file and has done nothing before: this program, started anew.
double LoadedBytes(const std::string& path) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::FILE* const answer = popen(fmt::format("'{}' memory '{}'", self, path).c_str(), "r");
  CHECK(answer != nullptr);
  double bytes = 0;
  CHECK(std::fscanf(answer, "%lf", &bytes) == 1);
  CHECK(pclose(answer) == 0);
  return bytes;
}

int PrintLoadedBytes(const std::string& path) {
  const int64_t before = ResidentBytes();
  const Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(path);
  fmt::print("{}\n", ResidentBytes() - before);
  return tokenizer.ok() ? 0 : 1;
}

// The peer in a process of its own, which answers one line for each line.
class Peer {
 public:
  Peer() {
    const std::string script = std::string(NUNSPARK_SOURCE_DIR) + "/tests/oracles/tokenizers_peer.py";
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    if (fork() == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      dup2(open("/dev/null", O_WRONLY), 2);
      for (const int end : {to[0], to[1], from[0], from[1]}) close(end);
      setenv("TOKENIZERS_PARALLELISM", "false", 1);
      setenv("RAYON_NUM_THREADS", "1", 1);
      execlp("python3", "python3", script.c_str(), nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = fdopen(to[1], "w");
    from_ = fdopen(from[0], "r");
    version_ = Line();
  }
  ~Peer() {
    std::fclose(to_);
    std::fclose(from_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  bool exists() const { return !version_.empty(); }
  const std::string& version() const { return version_; }
  // Seconds or bytes, as the request has it; 0 without a peer.
  double Ask(const std::string& request) {
    if (!exists()) return 0;
    fmt::print(to_, "{}\n", request);
    std::fflush(to_);
    return std::atof(Line().c_str());
  }

 private:
  std::string Line() {
    std::string line;
    for (int c = std::fgetc(from_); c != EOF && c != '\n'; c = std::fgetc(from_)) line += static_cast<char>(c);
    return line;
  }
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
  std::string version_;
};

struct Family {
  std::string name;
  std::string path;  // of a plain tokenizer.json
};

// Unpacks what is packed, so that neither side is measured with gzip.
std::vector<Family> Families(const std::filesystem::path& scratch) {
  const std::filesystem::path shared = std::filesystem::path(NUNSPARK_SOURCE_DIR) / "../shared/tokenizers";
  const std::filesystem::path own = std::filesystem::path(NUNSPARK_SOURCE_DIR) / "tests/data/tokenizers";
  const bool is_full = std::filesystem::exists(shared);
  if (!is_full) std::fputs("full reference set not present: small made-up vocabularies instead\n", stderr);
  std::vector<Family> families;
  for (const char* name : {"llama3_1", "qwen3", "gemma3", "gptoss"}) {
    if (is_full) families.push_back({name, (shared / name / "tokenizer.json.gz").string()});
  }
  for (const char* name : {"syn_qwen35", "syn_smollm2", "syn_youtu"}) {
    if (!is_full) families.push_back({name, (own / name / "tokenizer.json.gz").string()});
  }
  for (Family& family : families) {
    const Result<std::string> content = ReadTextFile(family.path);
    CHECK(content.ok());
    family.path = (scratch / (family.name + ".json")).string();
    std::ofstream(family.path, std::ios::binary) << *content;
  }
  return families;
}

void Compare(const std::string& name, double ours, double theirs, std::string_view unit, bool more_is_better) {
  Figure(name, ours, unit);
  if (theirs <= 0) return;
  Figure(name + ", peer", theirs, unit);
  Figure(name + (more_is_better ? ", times the peer" : ", part of the peer"), ours / theirs, "ratio");
}

void MeasureFamily(const Family& family, const std::string& text, const std::string& text_path, Peer& peer) {
  double load = 1e9, encode = 1e9, peer_load = 1e9, peer_encode = 1e9;
  const double memory = LoadedBytes(family.path);
  int64_t claimed = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::unique_ptr<Tokenizer> tokenizer;
    load = std::min(load, Seconds([&] {
                      Result<std::unique_ptr<Tokenizer>> loaded = Tokenizer::Load(family.path);
                      CHECK(loaded.ok());
                      tokenizer = std::move(loaded).value();
                    }));
    claimed = tokenizer->memory_bytes();
    peer_load = std::min(peer_load, peer.Ask("load " + family.path));
    for (int again = 0; again < kPasses; ++again) {
      encode = std::min(encode, Seconds([&] { CHECK(tokenizer->Encode(text, AddSpecials::kNo).ok()); }));
      peer_encode = std::min(peer_encode, peer.Ask("encode " + text_path));
    }
  }
  const double megabytes = static_cast<double>(text.size()) / kMegabyte;
  Compare(family.name + " load", load * 1e3, peer_load * 1e3, "ms", false);
  Compare(family.name + " encode", megabytes / encode, peer_encode > 0 ? megabytes / peer_encode : 0, "MB/s", true);
  Compare(family.name + " memory", memory / kMegabyte, peer.Ask("memory " + family.path) / kMegabyte, "MB", false);
  Figure(family.name + " memory, as planned", static_cast<double>(claimed) / kMegabyte, "MB");
}

void MeasureTokenizers() {
  const std::filesystem::path scratch =
      std::filesystem::temp_directory_path() / fmt::format("nunspark_text_bench_{}", getpid());
  std::filesystem::create_directories(scratch);
  const std::string text = MixedText(1'000'000);
  const std::string text_path = (scratch / "text").string();
  std::ofstream(text_path, std::ios::binary) << text;
  Peer peer;
  if (peer.exists()) {
    fmt::print(stderr, "peer: tokenizers {} of python3, one thread\n", peer.version());
  } else {
    std::fputs("peer absent: python3 has no module tokenizers (python3 -m pip install tokenizers); no ratios\n",
               stderr);
  }
  for (const Family& family : Families(scratch)) MeasureFamily(family, text, text_path, peer);
  std::filesystem::remove_all(scratch);
}

void MeasureHostile() {
  double worst = 0;
  std::string worst_name;
  for (const HostileTemplate& hostile : HostileTemplates()) {
    double best = 1e9;
    std::string ending;
    for (int pass = 0; pass < kPasses; ++pass) {
      best = std::min(best, Seconds([&] {
                        TemplateError error;
                        std::string output;
                        const auto chat_template = ChatTemplate::Parse(hostile.source, &error);
                        if (chat_template != nullptr) {
                          chat_template->RenderJsonText(R"({"d": {"a": {"b": 1}}, "b": [1]})", {2026, 7, 4, 15, 9, 26},
                                                        &output, &error);
                        }
                        ending = error.type;
                      }));
    }
    Figure(fmt::format("hostile: {}", hostile.name), best * 1e3, "ms");
    if (best > worst) {
      worst = best;
      worst_name = hostile.name;
    }
  }
  fmt::print(stderr, "the worst is: {}\n", worst_name);
  Figure("hostile, the worst of all", worst * 1e3, "ms");
}

}  // namespace
}  // namespace nunspark::text

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "memory" && argc == 3) return nunspark::text::PrintLoadedBytes(argv[2]);
  if (what == "grammar") {
    std::vector<std::string> paths(argv + 2, argv + argc);
    if (paths.empty()) paths.push_back(std::string(NUNSPARK_SOURCE_DIR) + "/models/demo-moe-4bit/tokenizer.json");
    nunspark::text::BenchGrammar(paths);
    return 0;
  }
  if (what != "hostile") nunspark::text::MeasureTokenizers();
  if (what != "tokenizers") nunspark::text::MeasureHostile();
  return 0;
}
