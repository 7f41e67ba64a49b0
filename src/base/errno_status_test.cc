#include "base/errno_status.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace nunspark {
namespace {

TEST(ErrnoStatus, GivesErrnosTheirCodes) {
  EXPECT_EQ(ErrnoText(EIO), "Input/output error (EIO)");
  EXPECT_EQ(ErrnoText(99999), "error 99999");
  EXPECT_EQ(ErrnoStatus(EACCES, "opening", "x").code(), StatusCode::kPermission);
  EXPECT_EQ(ErrnoStatus(EROFS, "opening", "x").code(), StatusCode::kPermission);
  EXPECT_EQ(ErrnoStatus(ENOTDIR, "opening", "x").code(), StatusCode::kNotFound);
  EXPECT_EQ(ErrnoStatus(EDQUOT, "opening", "x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus(EIO, "opening", "x").code(), StatusCode::kIo);
}

}  // namespace
}  // namespace nunspark
