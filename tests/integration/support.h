// Helpers of the tests that run whole models.
#ifndef NUNSPARK_TESTS_INTEGRATION_SUPPORT_H_
#define NUNSPARK_TESTS_INTEGRATION_SUPPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/test_folder.h"
#include "nunspark/engine.h"

namespace nunspark::test {

// The project's own data and, where it exists, the full reference set beside the project.
std::string DataPath(const std::string& relative);    // tests/data/...
std::string ModelPath(const std::string& name);       // models/...
std::string SharedPath(const std::string& relative);  // "" when there is none
std::string RealModelPath(const std::string& file);   // where tools/real_models puts files; may not exist

// What tests that run for many models are given: names of folders of tests/data/goldens, or demo models.
std::string FolderOf(const std::string& name);
std::vector<std::string> GoldenNames();                                  // all of the goldens, in order
std::string CaseName(const testing::TestParamInfo<std::string>& param);  // as a test's name may be

bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

// A tensor of a safetensors file, as numbers.
std::vector<float> ReadF32(const std::string& path, const std::string& name);
std::vector<int32_t> ReadI32(const std::string& path, const std::string& name);

// Files, engine and session in one, for one set of options.
struct Runner {
  std::unique_ptr<ModelFiles> files;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;

  // Fails the test when something cannot be opened.
  static Runner Open(const std::string& folder, const EngineOptions& options);

  // [tokens, vocab]
  std::vector<float> Logits(const std::vector<int32_t>& tokens);

  // Greedy continuation after Logits, with the margin of each step.
  void Greedy(std::vector<float> last, int steps, std::vector<int32_t>* ids, std::vector<float>* margins,
              std::vector<std::vector<float>>* logits = nullptr);
};

using TempFolder = TestFolder;

// Runs a command line with /bin/sh; returns its exit code, with stdout and stderr in the arguments.
int RunShell(const std::string& command, std::string* out, std::string* err = nullptr);

}  // namespace nunspark::test

#endif  // NUNSPARK_TESTS_INTEGRATION_SUPPORT_H_
