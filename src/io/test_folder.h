// A folder of its own for each test, removed at the end. For tests only.
#ifndef NUNSPARK_IO_TEST_FOLDER_H_
#define NUNSPARK_IO_TEST_FOLDER_H_

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>

#include "base/check.h"
#include "io/file.h"

namespace nunspark {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nunspark_test_XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string Path(std::string_view name) const { return JoinPath(path_, name); }

  // Writes (replaces) a file; returns its path.
  std::string Write(std::string_view name, std::string_view content) const {
    Result<File> file = File::Create(Path(name));
    CHECK(file.ok());
    CHECK(file->WriteAt(0, {reinterpret_cast<const uint8_t*>(content.data()), content.size()}).ok());
    return Path(name);
  }

 private:
  std::string path_;
};

// The same bytes for the same seed, everywhere.
inline std::string RandomBytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() & 0xFF);
  return bytes;
}

}  // namespace nunspark

#endif  // NUNSPARK_IO_TEST_FOLDER_H_
