#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/size.h"
#include "cli/doctor_checks.h"
#include "cli/engine_flags.h"
#include "cli/model_argument.h"
#include "cli/verbs.h"
#include "engine/drive_probe.h"
#include "engine/engine_plan.h"
#include "engine/model_files.h"
#include "io/file.h"

namespace nunspark::cli {
namespace {

// Of the file that is written where there is no model to read.
constexpr int64_t kProbeFileBytes = int64_t{256} << 20;

struct Flags {
  std::string model = ".";  // or a folder
  bool json = false;
};

// A file to read from that is there for the moment only.
class ProbeFile {
 public:
  ProbeFile() = default;
  ProbeFile(const ProbeFile&) = delete;
  ~ProbeFile() {
    if (!path_.empty()) (void)::unlink(path_.c_str());
  }

  Status Write(const std::string& folder) {
    const std::string path = JoinPath(folder, fmt::format(".nunspark-probe-{}", ::getpid()));
    ASSIGN_OR_RETURN(File file, File::Create(path));
    path_ = path;
    // Drives that compress, or skip zeros, would be seen too fast.
    std::vector<uint8_t> block(size_t{4} << 20);
    uint64_t state = 88172645463325252;
    for (int64_t at = 0; at < kProbeFileBytes; at += static_cast<int64_t>(block.size())) {
      for (size_t i = 0; i < block.size(); i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::copy_n(reinterpret_cast<const uint8_t*>(&state), 8, block.begin() + static_cast<std::ptrdiff_t>(i));
      }
      RETURN_IF_ERROR(file.WriteAt(at, block));
    }
    return file.Sync();
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Examined {
  std::vector<Finding> findings;
  std::optional<DriveSweep> sweep;
};

void AddProblem(Examined& examined, std::string topic, const Status& status, std::string remedy) {
  examined.findings.push_back(
      {.level = Level::kProblem, .topic = std::move(topic), .text = status.message(), .remedy = std::move(remedy)});
}

void ExamineDrive(const std::string& path, Examined& examined) {
  LargestFile file = LargestWeightFile(path);
  ProbeFile written;
  if (file.path.empty()) {
    const Status status = written.Write(path);
    if (!status.ok()) {
      examined.findings.push_back({.level = Level::kHint,
                                   .topic = "drive",
                                   .text = fmt::format("not measured: no model there, and {}", status.message()),
                                   .remedy = "name a model, or a folder that can be written to"});
      return;
    }
    file = {.path = written.path(), .bytes = kProbeFileBytes};
  }
  Result<DriveSweep> sweep = SweepDrive(file.path, file.bytes, {});
  if (!sweep.ok()) {
    AddProblem(examined, "drive", sweep.status(), "check the drive and the file's permissions");
    return;
  }
  for (Finding& finding : CheckDrive(*sweep)) examined.findings.push_back(std::move(finding));
  examined.sweep = std::move(*sweep);
}

void ExamineModel(const std::string& path, Examined& examined) {
  const Result<std::unique_ptr<ModelFilesImpl>> files = ModelFilesImpl::OpenFolder(path);
  if (!files.ok()) {
    AddProblem(examined, "model", files.status(), "see the message; `nunspark inspect` tells more");
    return;
  }
  if (IsDrafter(*(*files)->layout().spec)) return;
  EngineOptions options;
  if ((*files)->max_context() > 0) options.context = std::min(options.context, (*files)->max_context());
  const Result<EnginePlan> plan = MakeEnginePlan(**files, options);
  if (!plan.ok()) {
    AddProblem(examined, "model", plan.status(), "`nunspark plan` shows what takes the memory");
    return;
  }
  const MemoryPlan& memory = plan->memory;
  examined.findings.push_back(
      {.level = Level::kGood,
       .topic = "model",
       .text = fmt::format("{}: budget {} (set by {}), floor {}, all weights {}", (*files)->model_type(),
                           FormatSize(memory.budget_bytes), memory.budget_bound, FormatSize(memory.floor_bytes),
                           FormatSize(memory.full_bytes)),
       .remedy = "nothing to do"});
}

bool LooksLikeAModel(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) || FileExists(JoinPath(path, "config.json")) ||
         FileExists(JoinPath(path, "manifest.json"));
}

Json PointJson(const SweepPoint& point) {
  return Json::Object{
      {"request_bytes", point.request_bytes}, {"depth", point.depth}, {"bytes_per_s", point.bytes_per_second}};
}

Json ToJson(const Examined& examined) {
  Json::Array findings;
  for (const Finding& finding : examined.findings) {
    findings.push_back(Json::Object{{"level", std::string(LevelName(finding.level))},
                                    {"topic", finding.topic},
                                    {"text", finding.text},
                                    {"remedy", finding.remedy}});
  }
  Json out(Json::Object{{"findings", std::move(findings)}});
  if (examined.sweep) {
    Json::Array points;
    for (const SweepPoint& point : examined.sweep->scattered) points.push_back(PointJson(point));
    out.Set("drive", Json::Object{{"queue", examined.sweep->queue},
                                  {"scattered", std::move(points)},
                                  {"sequential", PointJson(examined.sweep->sequential)},
                                  {"best", PointJson(examined.sweep->best)}});
  }
  return out;
}

void PrintSweep(const DriveSweep& sweep) {
  std::puts("\nscattered reads, MB/s: size of a read, and how many at once");
  std::string head = fmt::format("  {:>10}", "");
  std::string lines;
  int64_t size = 0;
  for (const SweepPoint& point : sweep.scattered) {
    if (size == 0 || point.request_bytes == sweep.scattered.front().request_bytes)
      head += fmt::format("{:>8}", point.depth);
    if (point.request_bytes != size) lines += fmt::format("\n  {:>6} KiB", (size = point.request_bytes) >> 10);
    lines += fmt::format("{:>8.0f}", point.bytes_per_second / 1e6);
  }
  std::puts((head + lines).c_str());
}

Result<int> Run(const Flags& flags) {
  std::error_code error;
  if (!std::filesystem::exists(flags.model, error)) {
    return NotFoundError(fmt::format("{}: there is no such file or folder", flags.model));
  }
  Examined examined{.findings = CheckMachine(), .sweep = {}};
  const Result<FileSystemInfo> file_system = InspectFileSystem(flags.model);
  if (file_system.ok()) examined.findings.push_back(CheckFileSystem(*file_system, flags.model));
  ExamineDrive(flags.model, examined);
  if (LooksLikeAModel(flags.model)) ExamineModel(flags.model, examined);

  if (flags.json) {
    std::puts(WriteJson(ToJson(examined), 2).c_str());
  } else {
    for (const Finding& finding : examined.findings) {
      std::puts(fmt::format("{:<8} {:<14} {}\n{:24}-> {}", LevelName(finding.level), finding.topic, finding.text, "",
                            finding.remedy)
                    .c_str());
    }
    if (examined.sweep) PrintSweep(*examined.sweep);
  }
  const auto problem = std::find_if(examined.findings.begin(), examined.findings.end(),
                                    [](const Finding& finding) { return finding.level == Level::kProblem; });
  if (problem == examined.findings.end()) return 0;
  return InvalidArgumentError(fmt::format("{}: {}", problem->topic, problem->text));
}

}  // namespace

void AddDoctor(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("doctor", "what this machine and its drive give, and what to change");
  verb->add_option("path", flags->model, "a model, or a folder on the drive to measure")->capture_default_str();
  verb->add_flag("--json", flags->json, "one JSON object");
  verb->callback([flags, action] { *action = OnModel(flags, Run); });
}

}  // namespace nunspark::cli
