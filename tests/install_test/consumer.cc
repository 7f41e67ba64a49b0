// What a program needs of the installed package: headers it can include and one archive, enough to write text.
#include <cstdint>
#include <cstdio>
#include <string>

#include "nunspark/engine.h"

namespace {

nunspark::Result<std::string> Continue(const std::string& folder, std::string_view prompt) {
  auto files = nunspark::ModelFiles::Open(folder);
  if (!files.ok()) return files.status();
  auto engine = nunspark::Engine::Start(**files, {.budget_bytes = 4'000'000, .context = 256});
  if (!engine.ok()) return engine.status();
  auto session = (*engine)->NewSession();
  if (!session.ok()) return session.status();
  auto ids = (*files)->Encode(prompt);
  if (!ids.ok()) return ids.status();
  auto result = (*session)->Generate(*ids, {.max_tokens = 8}, [](int32_t) { return true; });
  if (!result.ok()) return result.status();
  return (*files)->Decode(result->ids, true);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto text = Continue(argv[1], "Once upon a time there was a");
  if (!text.ok()) {
    std::fprintf(stderr, "Error: %s\n", text.status().message().c_str());
    return 1;
  }
  std::printf("%s\n", text->c_str());
  return text->empty() ? 1 : 0;
}
