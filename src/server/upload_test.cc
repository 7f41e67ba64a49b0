#include "server/upload.h"

#include <string>

#include <gtest/gtest.h>

namespace nunspark::server {
namespace {

std::string Message(const Status& status) { return status.ok() ? "(ok)" : status.message(); }

// Checklist item 88.
TEST(Upload, WhatIsNoTextIsRefusedByItsContentAndTheReasonIsNamed) {
  const std::pair<std::string, std::string> refused[] = {{"%PDF-1.7\n", "PDF"},
                                                         {std::string("PK\x03\x04rest"), "zip"},
                                                         {"\x89PNG\r\n\x1a\n", "PNG"},
                                                         {"\xff\xd8\xff\xe0", "JPEG"},
                                                         {"GIF89a", "GIF"},
                                                         {std::string("\x7f") + "ELF\x02", "ELF"},
                                                         {std::string("text\0more", 9), "NUL"},
                                                         {std::string(8191, 'a') + std::string(1, '\0'), "NUL"},
                                                         {std::string(94, 'a') + std::string(6, '\xff'), "6.0 %"}};
  for (const auto& [content, part] : refused) {
    const std::string message = Message(CheckTextFile(content));
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find(".txt or .md"), std::string::npos) << message;
  }
  const std::string taken[] = {"",
                               "plain",
                               "\xef\xbb\xbfwith a mark",
                               "gr\xc3\xbc\xc3\x9f",
                               "a PDF is %PDF-",
                               std::string(95, 'a') + std::string(5, '\xff'),
                               std::string(8192, 'a') + std::string(1, '\0')};
  for (const std::string& content : taken) EXPECT_EQ(Message(CheckTextFile(content)), "(ok)");
}

TEST(Upload, PromptsAreTheTrimmedInstructionABlankLineAndTheText) {
  EXPECT_EQ(PromptText("  Sum it up.\n", "\xef\xbb\xbfline\n"), "Sum it up.\n\nline\n");
  EXPECT_EQ(PromptText(" \n", "text"), "text");
  EXPECT_EQ(PromptText("Do", "a\xff"), "Do\n\na\xef\xbf\xbd");
}

// Checklist item 89.
TEST(Upload, PromptsMayBeAsLongAsTheirKeysAndValuesFitInMemory) {
  constexpr int64_t kGib = int64_t{1} << 30;
  constexpr int64_t kQwen = 98'304;  // 48 layers x 4 heads of 128 elements x 4 bytes
  EXPECT_EQ(MakePromptLimit(16 * kGib, 8 * kGib, kQwen, 0).tokens, (4 * kGib) / kQwen);
  EXPECT_EQ(MakePromptLimit(16 * kGib, 8 * kGib, kQwen, 0).tokens, 43690);
  EXPECT_EQ(MakePromptLimit(8 * kGib, 6 * kGib, kQwen, 0).tokens, 4096);
  EXPECT_EQ(MakePromptLimit(512 * kGib, 8 * kGib, kQwen, 0).tokens, 65536);
  EXPECT_EQ(MakePromptLimit(0, 8 * kGib, kQwen, 0).tokens, 8192);
  EXPECT_EQ(MakePromptLimit(64 * kGib, 8 * kGib, 0, 0).tokens, 8192);
  EXPECT_EQ(MakePromptLimit(8 * kGib, 6 * kGib, kQwen, 100).tokens, 100);

  const PromptLimit limit = MakePromptLimit(8 * kGib, 6 * kGib, kQwen, 0);
  EXPECT_TRUE(CheckPromptLength(4096, limit).ok());
  const std::string message = Message(CheckPromptLength(5000, limit));
  for (const char* part : {"5000", "4096", "491.5 MB", "8.59 GB", "max_prompt_tokens"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
}

TEST(Upload, NamesLoseWhatCouldLeadElsewhere) {
  EXPECT_EQ(SafeFileName("notes.txt"), "notes.txt");
  EXPECT_EQ(SafeFileName("../../etc/passwd"), "passwd");
  EXPECT_EQ(SafeFileName("C:\\texts\\a b.md"), "a b.md");
  EXPECT_EQ(SafeFileName("/"), "file");
  EXPECT_EQ(SafeFileName(".."), "file");
  EXPECT_EQ(SafeFileName(std::string("a\0b\n.txt", 8)), "ab.txt");
  EXPECT_EQ(SafeFileName(std::string(199, 'x') + "\xc3\xbc"), std::string(199, 'x'));
}

TEST(Upload, PartsAreFoundBetweenTheirBoundaries) {
  const std::string body =
      "--B\r\nContent-Disposition: form-data; name=\"files\"; filename=\"../a;b.txt\"\r\nContent-Type: "
      "text/plain\r\n\r\none\r\n--not\r\n\r\n--B\r\ncontent-disposition: form-data; name=files; filename=e\r\n\r\n\r\n"
      "--B\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n--B--\r\n";
  const Result<std::vector<UploadedFile>> files = FilesOfForm("multipart/form-data; boundary=B", body, "files");
  ASSERT_TRUE(files.ok()) << files.status().message();
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ((*files)[0].name, "a;b.txt");
  EXPECT_EQ((*files)[0].content, "one\r\n--not\r\n");
  EXPECT_EQ((*files)[1].content, "");
  EXPECT_FALSE(FilesOfForm("application/json", body, "files").ok());
  EXPECT_FALSE(FilesOfForm("multipart/form-data", body, "files").ok());
  std::string many;
  for (int i = 0; i < 257; ++i) many += "--B\r\nContent-Disposition: form-data; name=files; filename=e\r\n\r\n\r\n";
  EXPECT_NE(FilesOfForm("multipart/form-data; boundary=B", many + "--B--\r\n", "files").status().message().find("256"),
            std::string::npos);
  // Wherever the body ends, it is refused or complete.
  for (size_t end = 0; end + 4 < body.size(); ++end) {
    EXPECT_FALSE(FilesOfForm("multipart/form-data; boundary=\"B\"", body.substr(0, end), "files").ok()) << end;
  }
}

}  // namespace
}  // namespace nunspark::server
