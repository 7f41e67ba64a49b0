// Speed of every kernel, for each encoding, instruction set, number of rows and threads, beside what this machine can
// do at most. tools/bench_kernels runs it and shows tables and a plot.
//
// usage: nunspark_kernels_bench [--filter REGEX] [--threads N] [--seconds S] [--runs R] [--outs N] [--cols N] [--list]
//                               [--json FILE]
//
// Standard output: a line per figure, name, value and unit separated by tabs. --json: the same and the limits.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include <fmt/format.h>

#include "base/cpu_count.h"
#include "base/json.h"
#include "bench/kernel_cases.h"
#include "bench/machine_limits.h"
#include "kernels/kernels.h"

namespace nunspark::bench {
namespace {

constexpr int64_t kReadBytes = 1 << 30;

struct Options {
  std::string filter = ".";
  KernelCaseOptions cases{.max_threads = DefaultThreads()};
  double seconds = 0.1;  // of one run of one case, at least
  int runs = 3;
  bool list = false;
  std::string json;
};

struct Limits {
  std::map<int, double> read_gbps;                            // by threads
  std::map<std::string, std::map<int, double>> fma, integer;  // by table, by threads
};

struct Figure {
  const KernelCase* what;
  double gbps = 0, gops = 0, gvalues = 0;
};

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "Error: %s\n", message.c_str());
  std::exit(1);
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--list") {
      options.list = true;
      continue;
    }
    if (i + 1 == argc) Fail(fmt::format("{}: unknown, or its value is missing", flag));
    const std::string value = argv[++i];
    const double number = std::atof(value.c_str());
    if (flag == "--filter") {
      options.filter = value;
    } else if (flag == "--json") {
      options.json = value;
    } else if (!(number > 0)) {
      Fail(fmt::format("{} {}: unknown, or not a number above 0", flag, value));
    } else if (flag == "--threads") {
      options.cases.max_threads = static_cast<int>(number);
    } else if (flag == "--seconds") {
      options.seconds = number;
    } else if (flag == "--runs") {
      options.runs = static_cast<int>(number);
    } else if (flag == "--outs") {
      options.cases.outs = static_cast<int64_t>(number);
    } else if (flag == "--cols") {
      options.cases.cols = static_cast<int64_t>(number);
    } else {
      Fail(fmt::format("unknown flag {}", flag));
    }
  }
  if (options.cases.outs % 128 != 0 || options.cases.cols % 256 != 0) {
    Fail("--outs must be a multiple of 128 and --cols one of 256, so that every encoding can store such a matrix");
  }
  return options;
}

// Keeps the better of what is there and what is measured now.
void MeasureReads(int max_threads, Limits& limits) {
  const ReadBuffer buffer(kReadBytes);
  for (int threads = 1; threads <= max_threads; ++threads) {
    double& best = limits.read_gbps[threads];
    best = std::max(best, ReadGbps(buffer, threads));
  }
}

Limits MeasureLimits(int max_threads) {
  Limits limits;
  MeasureReads(max_threads, limits);
  for (const KernelTable* table : AvailableKernels()) {
    for (int threads = 1; threads <= max_threads; ++threads) {
      limits.fma[table->name][threads] = FmaGflops(table->name, threads);
      limits.integer[table->name][threads] = IntegerGops(table->name, threads);
    }
  }
  return limits;
}

// The median of the runs. Each thread has a CPU of its own. Threads do not wait for each other within a run: that is
// the thread pool's cost, not theirs.
Figure Measure(const KernelCase& what, const Options& options) {
  const Work work = what.prepare();
  const auto rounds = [&](int64_t count) {
    return OnThreads(what.threads, Placement::kOwnCpus, [&](int thread) {
      for (int64_t i = 0; i < count; ++i) work.round(thread);
    });
  };
  rounds(1);
  int64_t count = 1;
  double seconds = rounds(count);
  while (seconds < options.seconds / 4) seconds = rounds(count *= 2);
  count = std::max<int64_t>(1, static_cast<int64_t>(options.seconds / seconds * static_cast<double>(count)));
  std::vector<double> times;
  for (int run = 0; run < options.runs; ++run) times.push_back(rounds(count) / static_cast<double>(count));
  const double scale = 1 / Median(times) / 1e9;
  return {.what = &what, .gbps = work.bytes * scale, .gops = work.operations * scale, .gvalues = work.values * scale};
}

void PrintLines(const Figure& figure) {
  const std::string name = figure.what->Name();
  if (figure.gbps > 0) std::printf("%s bytes\t%.4g\tGB/s\n", name.c_str(), figure.gbps);
  if (figure.gops > 0) std::printf("%s operations\t%.4g\tGFLOP/s\n", name.c_str(), figure.gops);
  if (figure.gvalues > 0) std::printf("%s values\t%.4g\tGvalues/s\n", name.c_str(), figure.gvalues);
  std::fflush(stdout);
}

void PrintLimits(const Limits& limits) {
  for (const auto& [threads, value] : limits.read_gbps) std::printf("read_memory/%d\t%.4g\tGB/s\n", threads, value);
  for (const auto& [table, by_threads] : limits.fma) {
    for (const auto& [threads, value] : by_threads) {
      std::printf("fma_peak/%s/%d\t%.4g\tGFLOP/s\n", table.c_str(), threads, value);
    }
  }
}

Json ByThreads(const std::map<int, double>& values) {
  Json::Object object;
  for (const auto& [threads, value] : values) object.emplace_back(std::to_string(threads), value);
  return object;
}

Json ByTable(const std::map<std::string, std::map<int, double>>& values) {
  Json::Object object;
  for (const auto& [table, by_threads] : values) object.emplace_back(table, ByThreads(by_threads));
  return object;
}

void WriteReport(const Options& options, const Limits& limits, const std::vector<Figure>& figures) {
  Json::Array rows;
  for (const Figure& f : figures) {
    rows.push_back(Json::Object{{"kernel", f.what->kernel},
                                {"isa", f.what->table},
                                {"numerics", f.what->numerics},
                                {"what", f.what->what},
                                {"rows", f.what->rows},
                                {"threads", f.what->threads},
                                {"gb_per_s", f.gbps},
                                {"gflop_per_s", f.gops},
                                {"gvalues_per_s", f.gvalues}});
  }
  const Json report(Json::Object{{"outs", options.cases.outs},
                                 {"cols", options.cases.cols},
                                 {"read_gb_per_s", ByThreads(limits.read_gbps)},
                                 {"fma_gflop_per_s", ByTable(limits.fma)},
                                 {"integer_gop_per_s", ByTable(limits.integer)},
                                 {"figures", std::move(rows)}});
  std::ofstream file(options.json);
  file << WriteJson(report, 1) << "\n";
  if (!file.flush()) Fail(fmt::format("{} cannot be written", options.json));
}

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  const std::regex filter(options.filter);
  std::vector<KernelCase> cases = AllKernelCases(options.cases);
  std::erase_if(cases, [&](const KernelCase& c) { return !std::regex_search(c.Name(), filter); });
  if (cases.empty()) Fail(fmt::format("no case matches '{}'; --list shows them", options.filter));
  if (options.list) {
    for (const KernelCase& c : cases) std::printf("%s\n", c.Name().c_str());
    return 0;
  }

  Limits limits = MeasureLimits(options.cases.max_threads);
  std::vector<Figure> figures;
  for (size_t i = 0; i < cases.size(); ++i) {
    figures.push_back(Measure(cases[i], options));
    PrintLines(figures.back());
    if (i % 50 == 49) std::fprintf(stderr, "%zu of %zu cases\n", i + 1, cases.size());
  }
  // What others do on the machine takes from its memory's rate, and comes and goes: the better of before and after.
  MeasureReads(options.cases.max_threads, limits);
  PrintLimits(limits);
  if (!options.json.empty()) WriteReport(options, limits, figures);
  return 0;
}

}  // namespace
}  // namespace nunspark::bench

int main(int argc, char** argv) {
  try {
    return nunspark::bench::Main(argc, argv);
  } catch (const std::regex_error& error) {
    nunspark::bench::Fail(fmt::format("--filter is no regular expression: {}", error.what()));
  }
}
