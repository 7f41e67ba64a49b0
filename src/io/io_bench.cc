// How fast a drive delivers through each kind of read queue, and at what cost in processor time (column CPU).
// BENCHMARK names: read/<queue>/<KiB of a request>/split:<KiB>/depth:<requests>. The file is 1 GiB in the temporary
// folder (TMPDIR chooses the drive), its pages dropped from the cache before each buffered run.
//
// --replay TRACE [--last-bytes N] instead: the read list of a run (generate --io-trace), or its end, as fast as the
// drive gives it.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "io/read_queue.h"
#include "io/read_trace.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

constexpr int64_t kFileBytes = int64_t{1} << 30;
constexpr int64_t kRunBytes = int64_t{128} << 20;

const std::string& TestFile() {
  static const TestFolder folder;
  static const std::string path = [] {
    Result<File> file = File::Create(folder.Path("data"));
    CHECK(file.ok());
    const std::string part = RandomBytes(16 << 20, 1);
    for (int64_t at = 0; at < kFileBytes; at += static_cast<int64_t>(part.size())) {
      CHECK(file->WriteAt(at, {reinterpret_cast<const uint8_t*>(part.data()), part.size()}).ok());
    }
    CHECK(file->Sync().ok());
    return folder.Path("data");
  }();
  return path;
}

void Read(benchmark::State& state, IoBackend backend, bool direct, int64_t request_bytes, int64_t split, int depth) {
  Result<std::unique_ptr<ReadQueue>> queue =
      OpenReadQueue({TestFile()}, {.backend = backend, .direct = direct, .depth = depth, .split_bytes = split});
  if (!queue.ok()) return state.SkipWithError(queue.status().message().c_str());
  const File file = File::OpenRead(TestFile()).value();
  void* const memory =
      ::mmap(nullptr, kRunBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  CHECK(memory != MAP_FAILED);
  std::mt19937_64 random(1);
  std::vector<ReadCompletion> done;
  for (auto _ : state) {
    state.PauseTiming();
    if (!direct) CHECK(::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED) == 0);
    state.ResumeTiming();
    const int64_t count = kRunBytes / request_bytes;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t place = static_cast<int64_t>(random() % static_cast<uint64_t>(kFileBytes / request_bytes));
      (*queue)->Submit({.file = 0,
                        .offset = place * request_bytes,
                        .bytes = request_bytes,
                        .dst = static_cast<uint8_t*>(memory) + i * request_bytes});
    }
    done.clear();
    while (static_cast<int64_t>(done.size()) < count) (*queue)->Poll(ReadQueue::Wait::kYes, done);
    for (const ReadCompletion& completion : done) CHECK(completion.status.ok());
  }
  ::munmap(memory, kRunBytes);
  state.SetLabel((*queue)->Description());
  state.counters["GBps"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(kRunBytes) / 1e9, benchmark::Counter::kIsRate);
}

void Register(std::string_view name, IoBackend backend, bool direct, int64_t request_kib, int64_t split_kib,
              int depth) {
  benchmark::RegisterBenchmark(
      fmt::format("read/{}/{}/split:{}/depth:{}", name, request_kib, split_kib, depth).c_str(),
      [=](benchmark::State& state) { Read(state, backend, direct, request_kib << 10, split_kib << 10, depth); })
      ->UseRealTime()
      ->MeasureProcessCPUTime()
      ->Unit(benchmark::kMillisecond);
}

int Replay(const std::string& path, int64_t last_bytes) {
  const Result<ReadTrace> trace = LoadReadTrace(path);
  const Result<ReplayResult> replay = trace.ok() ? ReplayReads(*trace, last_bytes) : trace.status();
  if (!replay.ok()) {
    std::fprintf(stderr, "Error: %s\n", replay.status().message().c_str());
    return 1;
  }
  const double bytes = static_cast<double>(replay->bytes);
  std::fputs(fmt::format("replay {}\t{:.4f}\tGB/s\nreplay requests\t{}\t1\nreplay bytes\t{}\tB\n"
                         "replay time\t{:.6f}\ts\n",
                         replay->queue, bytes / replay->seconds / 1e9, replay->requests, replay->bytes, replay->seconds)
                 .c_str(),
             stdout);
  return 0;
}

}  // namespace
}  // namespace nunspark

int main(int argc, char** argv) {
  using namespace nunspark;
  if (argc >= 3 && std::string_view(argv[1]) == "--replay") {
    int64_t last_bytes = -1;
    const std::string_view number = argc == 5 ? argv[4] : "";
    const bool limited = argc == 5 && std::string_view(argv[3]) == "--last-bytes" &&
                         std::from_chars(number.data(), number.data() + number.size(), last_bytes).ec == std::errc();
    if (argc == 3 || limited) return Replay(argv[2], last_bytes);
    std::fputs("usage: nunspark_io_bench --replay TRACE [--last-bytes N]\n", stderr);
    return 2;
  }
  for (const int64_t request : {64, 1024, 4096}) {
    Register("ring_direct", IoBackend::kUring, true, request, 512, 64);
    Register("ring_buffered", IoBackend::kUring, false, request, 512, 64);
    Register("pread_direct", IoBackend::kPread, true, request, 512, 64);
    Register("pread_buffered", IoBackend::kPread, false, request, 512, 64);
  }
  for (const int64_t split : {128, 256, 1024, 4096}) Register("ring_direct", IoBackend::kUring, true, 4096, split, 64);
  for (const int depth : {4, 16}) Register("ring_direct", IoBackend::kUring, true, 4096, 512, depth);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
