// The folder of `serve --data-dir`: what one server keeps between its runs, and nobody else touches meanwhile.
#ifndef NUNSPARK_SERVER_DATA_FOLDER_H_
#define NUNSPARK_SERVER_DATA_FOLDER_H_

#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark::server {

// Makes the folder `path`, for its owner alone, when it is not there; its parent must be. Errors: kInvalidArgument
// where it is a file; kNotFound, kPermission, kResourceExhausted, kIo.
Status MakeOwnFolder(const std::string& path);

// Errors: kPermission, kIo. A file that is not there is removed already.
Status RemoveFile(const std::string& path);

// Removes the files of a folder but those of these names: what a process that was killed left behind.
Status RemoveAllBut(const std::vector<std::string>& names, const std::string& folder);

// Held by this process from Open to the destructor, or to its end. Move-only.
class DataFolder {
 public:
  // Makes the folder when it is not there. Errors: kInvalidArgument when another process holds it, with that process's
  // id; MakeOwnFolder's.
  static Result<DataFolder> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string Path(std::string_view name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
  File lock_;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_DATA_FOLDER_H_
