// The folder of `serve --data-dir`: what one server keeps between its runs, and nobody else touches meanwhile.
#ifndef NUNSPARK_SERVER_DATA_FOLDER_H_
#define NUNSPARK_SERVER_DATA_FOLDER_H_

#include <string>
#include <string_view>

#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark::server {

// Held by this process from Open to the destructor, or to its end. Move-only.
class DataFolder {
 public:
  // Makes the folder, for its owner alone, when it is not there; its parent must be.
  // Errors: kInvalidArgument when another process holds it, with that process's id; kNotFound, kPermission,
  // kResourceExhausted, kIo.
  static Result<DataFolder> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string Path(std::string_view name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
  File lock_;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_DATA_FOLDER_H_
