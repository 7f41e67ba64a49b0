// What opening a pack costs when it has very many experts: seconds and memory of OpenCheckpoint on a generated manifest
// (docs/measurements/manifest.md). Each opening is a process of its own, so that its peak is its own.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "base/check.h"
#include "formats/checkpoint.h"
#include "formats/manifest.h"
#include "io/file.h"

namespace nunspark {
namespace {

constexpr int kExpertsPerLayer = 512;
constexpr int64_t kRecordBytes = 16384;
constexpr std::string_view kWeightsFile = "model-experts-00001.safetensors";

// Four-bit experts: three projections, each as weight, scales and biases.
ManifestPiece Expert(int layer, int expert, int64_t offset) {
  ManifestPiece piece{.piece_id = fmt::format("layer_{:03}_expert_{}", layer, expert),
                      .file = 0,
                      .offset = offset,
                      .bytes = kRecordBytes,
                      .checksum = "xxh3:0123456789abcdef0123456789abcdef",
                      .tensors = {}};
  int64_t at = 0;
  for (const char* const projection : {"gate_proj", "up_proj", "down_proj"}) {
    for (const auto& [part, dtype, columns] :
         {std::tuple("weight", DType::kU32, 8), std::tuple("scales", DType::kBF16, 1),
          std::tuple("biases", DType::kBF16, 1)}) {
      const int64_t bytes = 64 * columns * DTypeBytes(dtype);
      piece.tensors.push_back(
          {.name = fmt::format("model.layers.{}.mlp.experts.{}.{}.{}", layer, expert, projection, part),
           .dtype = dtype,
           .shape = {64, columns},
           .offset = at,
           .bytes = bytes});
      at += bytes;
    }
  }
  return piece;
}

// A pack that is complete but for its weights: the file has its size and no content. Returns the manifest's size.
size_t WritePack(const std::string& folder, int experts) {
  Manifest manifest;
  manifest.model_type = "qwen3_moe";
  manifest.num_layers = (experts + kExpertsPerLayer - 1) / kExpertsPerLayer;
  manifest.source_hash = "0123456789abcdef0123456789abcdef";
  manifest.config.Set("model_type", "qwen3_moe");
  for (int i = 0; i < experts; ++i) {
    manifest.pieces.push_back(Expert(i / kExpertsPerLayer, i % kExpertsPerLayer, 4096 + i * kRecordBytes));
  }
  const int64_t bytes = 4096 + experts * kRecordBytes;
  manifest.files = {{.path = std::string(kWeightsFile), .bytes = bytes, .header_hash = 1}};
  const std::string text = WriteManifest(manifest);
  CHECK(WriteFileAtomically(JoinPath(folder, kManifestFile), text).ok());
  Result<File> file = File::Create(JoinPath(folder, kWeightsFile));
  CHECK(file.ok() && file->Truncate(bytes).ok());
  return text.size();
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

void Print(int experts, const char* what, double value, const char* unit) {
  std::printf("%d experts, %s\t%.3f\t%s\n", experts, what, value, unit);
  std::fflush(stdout);
}

// In a child: opens the pack, prints, leaves.
[[noreturn]] void Open(const std::string& folder, int experts) {
  const int64_t before = ResidentBytes();
  const auto start = std::chrono::steady_clock::now();
  const Result<Checkpoint> checkpoint = OpenCheckpoint(folder);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (!checkpoint.ok()) std::fprintf(stderr, "%s\n", checkpoint.status().message().c_str());
  CHECK(checkpoint.ok());
  CHECK(checkpoint->tensors.tensors().size() == static_cast<size_t>(experts) * 9);
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  Print(experts, "opening", seconds.count(), "s");
  // On a machine that does other work too, the figure to compare.
  Print(experts, "processor time", of(usage.ru_utime) + of(usage.ru_stime), "s");
  Print(experts, "peak", static_cast<double>(usage.ru_maxrss * 1024 - before) / 1e6, "MB");
  Print(experts, "kept", static_cast<double>(ResidentBytes() - before) / 1e6, "MB");
  ::_exit(0);
}

void Run(const std::string& folder, int experts) {
  // Children all: what this process has touched counts in theirs.
  const pid_t writer = ::fork();
  if (writer == 0) {
    Print(experts, "manifest", static_cast<double>(WritePack(folder, experts)) / 1e6, "MB");
    ::_exit(0);
  }
  int state = 0;
  CHECK(::waitpid(writer, &state, 0) == writer && state == 0);
  for (int round = 0; round < 3; ++round) {
    const pid_t reader = ::fork();
    if (reader == 0) Open(folder, experts);
    CHECK(::waitpid(reader, &state, 0) == reader && state == 0);
  }
}

int Main() {
  const char* const temporary = std::getenv("TMPDIR");
  std::string folder = JoinPath(temporary == nullptr ? "/tmp" : temporary, "manifest_bench_XXXXXX");
  CHECK(::mkdtemp(folder.data()) != nullptr);
  for (const int experts : {10240, 102400}) Run(folder, experts);
  for (const std::string_view name : {kManifestFile, kWeightsFile}) ::unlink(JoinPath(folder, name).c_str());
  ::rmdir(folder.c_str());
  return 0;
}

}  // namespace
}  // namespace nunspark

int main() { return nunspark::Main(); }
