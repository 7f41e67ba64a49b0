// A model of a hub into the cache: what it needs, how much of that is missing, and getting it.
#ifndef NUNSPARK_HUB_PULL_H_
#define NUNSPARK_HUB_PULL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hub/download.h"
#include "hub/environment.h"
#include "hub/listing.h"
#include "hub/repo_ref.h"
#include "nunspark/status.h"

namespace nunspark {

inline constexpr int kMaxParallelDownloads = 16;

struct PullOptions {
  HubEnvironment hub;
  RepoRef ref;
  int parallel = 4;              // files at once, 1 to kMaxParallelDownloads
  DownloadControl control = {};  // its `progress` is not used
  // Called from time to time by the thread that pulls, with bytes that are there and all bytes.
  std::function<void(int64_t done, int64_t total)> progress = nullptr;
};

// What pulling would do. Nothing was written yet.
struct PullPlan {
  std::string commit;
  std::vector<RepoFile> files;  // those that the model needs
  std::string model_file;       // that opens a GGUF model, "" for a checkpoint
  int64_t total_bytes = 0;
  int64_t missing_bytes = 0;  // not in the cache yet, parts of downloads counted as there
};

struct PullReport {
  std::string path;  // what opens the model: a snapshot's folder, or a GGUF file in it
  std::string commit;
  int64_t files = 0;
  int64_t bytes = 0;             // of all files
  int64_t downloaded_bytes = 0;  // of those that were not there
};

// Where a file of the plan comes from, and what it must be; `path`: of the finished file.
DownloadedFile DownloadOf(const PullOptions& options, const PullPlan& plan, const RepoFile& file, std::string path);

// Errors: kResourceExhausted, with numbers, when the drive of `folder` has not so much room and some to spare.
Status CheckFreeSpace(const std::string& folder, int64_t needed_bytes);

// Asks the hub. Errors: kInvalidArgument for names; kNotFound, kPermission, kIo, kDataLoss of the hub's answer;
// ChooseFiles'; kUnsupported for a hub that does not say its files' hashes; kCancelled.
Result<PullPlan> PlanPull(const PullOptions& options);

// Downloads what is missing. Every file is verified before it appears; a file appears in the snapshot only then, and
// config.json last, so that an interrupted pull is no model yet; the branch's commit is noted at the end. Any number of
// processes, also other tools', may fill one cache at once.
// Errors: kResourceExhausted when the drive has too little room (with numbers, before anything is downloaded); those of
// Download, with the file's name; kCancelled.
Result<PullReport> Pull(const PullOptions& options, const PullPlan& plan);

}  // namespace nunspark

#endif  // NUNSPARK_HUB_PULL_H_
