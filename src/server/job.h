// A job of the web application: one file, one prompt, one output. What is asked for and how it stands; plain values.
#ifndef NUNSPARK_SERVER_JOB_H_
#define NUNSPARK_SERVER_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "nunspark/status.h"

namespace nunspark::server {

// What an engine is opened with. Jobs with equal ones share it.
struct EngineSettings {
  std::string model{};  // path
  std::string draft{};  // path; empty: none
  std::string budget = "auto";
  int32_t kv_bits = 0;  // 0: not quantised
  int32_t kv_group_size = 64;
  // Of a draft; as they are by default where there is none.
  int32_t draft_tokens = 16;
  int32_t accept_top_k = 1;

  friend bool operator==(const EngineSettings&, const EngineSettings&) = default;
};

// The body of POST /api/batch: a job for each of its files.
struct JobRequest {
  std::string model, draft;
  std::string preset = "lossless";
  std::string instruction;
  bool use_chat_template = true;
  int64_t max_tokens = 2048;
  double temperature = 0;
  std::string output_dir;
  std::vector<std::string> file_ids;
  // "advanced"
  std::optional<int64_t> kv_bits;
  int64_t kv_group_size = 64;
  std::string budget = "auto";
  std::optional<int64_t> accept_top_k, num_draft_tokens, max_prompt_tokens;
  bool together = true;  // with others in one batch of the model

  // The preset's, unless "advanced" has its own.
  EngineSettings Settings() const;
  // Whether a job of this and one of `other` may be decoded together.
  bool GroupsWith(const JobRequest& other) const;
};

// Errors: kInvalidArgument naming the field, what it must be and what it is.
Result<JobRequest> ParseJobRequest(const Json& body);
Json ToJson(const JobRequest& request);

enum class JobStatus : uint8_t { kQueued, kRunning, kDone, kError, kCancelled };
std::string_view JobStatusName(JobStatus status);
std::optional<JobStatus> FindJobStatus(std::string_view name);

inline bool Ended(JobStatus status) { return status != JobStatus::kQueued && status != JobStatus::kRunning; }

struct Job {
  int64_t sequence = 0;  // the order of submission
  std::string id{}, request_id{}, file_id{}, file_name{};
  JobStatus status = JobStatus::kQueued;
  int64_t tokens_done = 0;
  std::string error{};                          // of kError
  std::string output_path{};                    // empty: no output was begun
  Json metrics{};                               // null: none yet
  int64_t created = 0, ended = 0;               // Unix time; 0: not yet
  std::shared_ptr<const JobRequest> request{};  // shared by its jobs
};

// {"id", "batch_id", "file_name", "status", "tokens_done", "error", "output_path", "metrics", "model", "created",
// "ended"}
Json ToJson(const Job& job);

// What lies beside an output.
Json SidecarJson(const Job& job);

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_JOB_H_
