#include "hub/digest.h"

#include <openssl/evp.h>

#include <fmt/format.h>

#include "base/check.h"

namespace nunspark {

std::string_view DigestName(DigestKind kind) {
  switch (kind) {
    case DigestKind::kSha256: return "SHA-256";
    case DigestKind::kGitBlob: return "git's SHA-1";
  }
  return "";
}

bool IsDigest(DigestKind kind, std::string_view text) {
  const size_t digits = kind == DigestKind::kSha256 ? 64 : 40;
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void Digest::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Digest::Digest(DigestKind kind, int64_t bytes) : context_(EVP_MD_CTX_new()) {
  CHECK(context_ != nullptr);
  CHECK(EVP_DigestInit_ex(context_.get(), kind == DigestKind::kSha256 ? EVP_sha256() : EVP_sha1(), nullptr) == 1);
  if (kind == DigestKind::kGitBlob) Update(fmt::format("blob {}", bytes) + std::string(1, '\0'));
}

void Digest::Update(std::string_view data) { CHECK(EVP_DigestUpdate(context_.get(), data.data(), data.size()) == 1); }

std::string Digest::Hex() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int count = 0;
  CHECK(EVP_DigestFinal_ex(context_.get(), bytes, &count) == 1);
  std::string hex;
  for (unsigned int i = 0; i < count; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

}  // namespace nunspark
