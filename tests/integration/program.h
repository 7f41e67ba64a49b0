// Helpers of the tests that run the program.
#ifndef NUNSPARK_TESTS_INTEGRATION_PROGRAM_H_
#define NUNSPARK_TESTS_INTEGRATION_PROGRAM_H_

#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

#include "base/json.h"
#include "integration/support.h"

namespace nunspark::test {

inline const std::string kBinary = NUNSPARK_BINARY;

struct Ran {
  int code;
  std::string out, err;
};

// `before`: shell words in front of the program.
inline Ran Nunspark(const std::string& arguments, const std::string& before = "") {
  Ran ran;
  ran.code = RunShell(before + kBinary + " " + arguments, &ran.out, &ran.err);
  return ran;
}

inline Json JsonOf(const Ran& ran) {
  EXPECT_EQ(ran.code, 0) << ran.err;
  const Result<Json> json = ParseJson(ran.out, "output");
  EXPECT_TRUE(json.ok()) << json.status().message() << "\n" << ran.out;
  return json.ok() ? *json : Json();
}

// A member of a member; null when there is none.
inline Json MemberOf(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* key : path) {
    if ((at = at->Find(key)) == nullptr) {
      ADD_FAILURE() << "no member " << key;
      return Json();
    }
  }
  return *at;
}

// Exit 1 and one last line, "Error: ...", that holds every part.
inline void ExpectError(const Ran& ran, std::initializer_list<const char*> parts) {
  EXPECT_EQ(ran.code, 1) << ran.err;
  const size_t start = ran.err.find("Error: ");
  ASSERT_TRUE(start == 0 || (start != std::string::npos && ran.err[start - 1] == '\n')) << ran.err;
  EXPECT_EQ(ran.err.find('\n', start), ran.err.size() - 1) << ran.err;
  for (const char* part : parts) EXPECT_NE(ran.err.find(part, start), std::string::npos) << part << " in " << ran.err;
}

inline std::string Demo() { return ModelPath("demo-moe-4bit"); }

}  // namespace nunspark::test

#endif  // NUNSPARK_TESTS_INTEGRATION_PROGRAM_H_
