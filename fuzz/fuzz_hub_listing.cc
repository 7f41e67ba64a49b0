// What a hub says about a repository: whatever is accepted has names that stay in their folder, and hashes that are
// file names; choosing among the files takes any of them.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "hub/file_choice.h"
#include "hub/listing.h"
#include "hub/repo_ref.h"

namespace {

using namespace nunspark;

void CheckFile(const RepoFile& file) {
  CHECK(file.bytes >= 0);
  CHECK(file.digest.empty() || IsDigest(file.digest_kind, file.digest));
  const std::filesystem::path path = (std::filesystem::path("/snapshot") / file.name).lexically_normal();
  CHECK(path.string() == "/snapshot/" + file.name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const Result<RepoListing> listing = ParseListing(text, "input"); listing.ok()) {
    CHECK(IsCommit(listing->commit));
    std::vector<NamedSize> files;
    for (const RepoFile& file : listing->files) {
      CheckFile(file);
      files.push_back({.name = file.name, .bytes = file.bytes});
    }
    for (const char* wanted : {"", "Q4_K_M", "*.gguf"}) {
      const Result<FileChoice> choice = ChooseFiles(files, wanted);
      if (!choice.ok()) continue;
      CHECK(!choice->files.empty());
      for (const size_t i : choice->files) CHECK(i < files.size());
    }
    (void)IsWholeCheckpoint(files);
    if (CheckTogether(listing->files).ok()) CHECK(listing->files.size() <= kMaxListedFiles);
  }
  if (const Result<RepoRef> ref = ParseRepoRef(text); ref.ok()) {
    CHECK(ref->Text() == text);
    if (ref->id.find('/') != std::string::npos) CHECK(RepoIdOfFolder(RepoFolderName(ref->id)) == ref->id);
    const std::filesystem::path path = (std::filesystem::path("/refs") / ref->revision_or_default()).lexically_normal();
    CHECK(path.string() == "/refs/" + ref->revision_or_default());
  }
  return 0;
}
