// The files that a job leaves in its output folder: "<file name>.out.txt", and beside it "<same base>.meta.json".
#ifndef NUNSPARK_SERVER_JOB_OUTPUT_H_
#define NUNSPARK_SERVER_JOB_OUTPUT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark::server {

// An output that grows. What an interrupted run has left is never cut: the job is computed again, which gives the same
// text, and the part that is there already is compared instead of written. Where it differs (somebody edited it, or
// the model was replaced) that file stays as it is and the text goes to a new one. Used by one thread at a time.
class JobOutput {
 public:
  // Creates an empty output in `folder`, which is made if need be: "notes.txt.out.txt", or "notes.txt.1.out.txt" and so
  // on where there is an output or a sidecar of that name. Errors: kPermission, kIo, kResourceExhausted with the path.
  static Result<JobOutput> Create(const std::string& folder, const std::string& file_name);

  // Goes on with `path`, which Create made for a run that was interrupted; a new one when it is not there any more.
  static Result<JobOutput> Resume(const std::string& path, const std::string& folder, const std::string& file_name);

  // The next part of the text. Returns what of it is new, the rest was there. Errors: as Create's.
  Result<std::string> Append(std::string_view text);

  // From its start again, as Resume.
  Status Restart();

  // The text has ended: it is on the drive. Errors: as Create's.
  Status Finish();

  const std::string& path() const { return path_; }
  // What was there when it was opened: for whoever looks on.
  std::string_view earlier() const { return earlier_; }

 private:
  JobOutput() = default;
  Status Open();
  // Leaves the file to what it holds; what was given so far goes to a new one.
  Status Depart();

  std::string folder_, file_name_, path_;
  File file_;
  std::string earlier_;  // in the file; compared up to end_
  int64_t end_ = 0;      // of the text given so far
};

// The names of a job's files by that of its output.
std::string SidecarPath(const std::string& output_path);

// Of a job that ended before it had an output: the path an output would get, which is not created. Errors: as Create's.
Result<std::string> FreeOutputPath(const std::string& folder, const std::string& file_name);

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_JOB_OUTPUT_H_
