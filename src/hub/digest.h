// The two hashes by which a hub names contents: SHA-256 of large files, and git's SHA-1 of small ones.
#ifndef NUNSPARK_HUB_DIGEST_H_
#define NUNSPARK_HUB_DIGEST_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace nunspark {

// kGitBlob: SHA-1 over "blob <size>\0" and the content.
enum class DigestKind : uint8_t { kSha256, kGitBlob };

// "SHA-256", "git's SHA-1".
std::string_view DigestName(DigestKind kind);

// What Hex gives: 64 or 40 lower-case digits.
bool IsDigest(DigestKind kind, std::string_view text);

// Of one content, fed in parts. Move-only.
class Digest {
 public:
  // `bytes`: of the whole content; part of kGitBlob's hash.
  Digest(DigestKind kind, int64_t bytes);

  void Update(std::string_view data);

  // Lower-case. Once, at the end.
  std::string Hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace nunspark

#endif  // NUNSPARK_HUB_DIGEST_H_
