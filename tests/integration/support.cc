#include "integration/support.h"

#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "formats/safetensors.h"
#include "io/file.h"

namespace nunspark::test {
namespace {

template <typename T>
std::vector<T> ReadTensor(const std::string& path, const std::string& name, DType dtype) {
  TensorIndex index;
  const Status status = AddSafetensorsFile(path, index);
  EXPECT_TRUE(status.ok()) << status.message();
  const TensorInfo* const tensor = index.Find(name);
  EXPECT_TRUE(tensor != nullptr) << path << " has no " << name;
  if (tensor == nullptr) return {};
  EXPECT_EQ(tensor->dtype, dtype);
  std::vector<T> values(static_cast<size_t>(tensor->bytes) / sizeof(T));
  Result<File> file = File::OpenRead(path);
  EXPECT_TRUE(file.ok());
  EXPECT_TRUE(
      file->ReadAt(tensor->offset, {reinterpret_cast<uint8_t*>(values.data()), static_cast<size_t>(tensor->bytes)})
          .ok());
  return values;
}

}  // namespace

std::string DataPath(const std::string& relative) {
  return std::string(NUNSPARK_SOURCE_DIR) + "/tests/data/" + relative;
}

std::string ModelPath(const std::string& name) { return std::string(NUNSPARK_SOURCE_DIR) + "/models/" + name; }

std::string SharedPath(const std::string& relative) {
  const std::string root = std::string(NUNSPARK_SOURCE_DIR) + "/../shared";
  return std::filesystem::exists(root) ? root + "/" + relative : "";
}

std::string RealModelPath(const std::string& file) {
  return std::string(NUNSPARK_SOURCE_DIR) + "/build/models/" + file;
}

std::string FolderOf(const std::string& name) {
  return name.starts_with("demo") ? ModelPath(name) : DataPath("goldens/" + name);
}

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(DataPath("goldens")))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string CaseName(const testing::TestParamInfo<std::string>& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> ReadF32(const std::string& path, const std::string& name) {
  return ReadTensor<float>(path, name, DType::kF32);
}

std::vector<int32_t> ReadI32(const std::string& path, const std::string& name) {
  return ReadTensor<int32_t>(path, name, DType::kI32);
}

Runner Runner::Open(const std::string& folder, const EngineOptions& options) {
  Runner runner;
  Result<std::unique_ptr<ModelFiles>> files = ModelFiles::Open(folder);
  EXPECT_TRUE(files.ok()) << files.status().message();
  if (!files.ok()) return runner;
  runner.files = std::move(files).value();
  Result<std::unique_ptr<Engine>> engine = Engine::Start(*runner.files, options);
  EXPECT_TRUE(engine.ok()) << folder << ": " << engine.status().message();
  if (!engine.ok()) return runner;
  runner.engine = std::move(engine).value();
  Result<std::unique_ptr<Session>> session = runner.engine->NewSession();
  EXPECT_TRUE(session.ok());
  if (session.ok()) runner.session = std::move(session).value();
  return runner;
}

std::vector<float> Runner::Logits(const std::vector<int32_t>& tokens) {
  const size_t vocab = static_cast<size_t>(files->vocab_size());
  std::vector<float> all(tokens.size() * vocab, std::numeric_limits<float>::quiet_NaN());
  const Status status = session->Logits(tokens, [&](int64_t first, int64_t count, const float* logits) {
    std::copy_n(logits, static_cast<size_t>(count) * vocab,
                all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(first) * vocab));
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

void Runner::Greedy(std::vector<float> last, int steps, std::vector<int32_t>* ids, std::vector<float>* margins,
                    std::vector<std::vector<float>>* logits) {
  for (int step = 0; step < steps; ++step) {
    const auto best = std::max_element(last.begin(), last.end());
    float second = -std::numeric_limits<float>::infinity();
    for (auto it = last.begin(); it != last.end(); ++it) {
      if (it != best) second = std::max(second, *it);
    }
    const int32_t token = static_cast<int32_t>(best - last.begin());
    ids->push_back(token);
    if (margins != nullptr) margins->push_back(*best - second);
    if (step + 1 == steps) break;
    const Status status = session->Append(token, [&](int64_t, int64_t, const float* row) {
      std::copy_n(row, last.size(), last.begin());
      return Status();
    });
    EXPECT_TRUE(status.ok()) << status.message();
    if (logits != nullptr) logits->push_back(last);
  }
}

int RunShell(const std::string& command, std::string* out, std::string* err) {
  const TempFolder folder;
  const std::string out_path = folder.path() + "/out", err_path = folder.path() + "/err";
  const int status = std::system(("( " + command + " ) >" + out_path + " 2>" + err_path + " </dev/null").c_str());
  if (out != nullptr) *out = ReadWholeFile(out_path).value();
  if (err != nullptr) *err = ReadWholeFile(err_path).value();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace nunspark::test
