// Catches: content that is cut or lengthened by a byte; names in quotes that are read wrongly; and malformed forms that
// are taken for complete ones.
#include "tessera/server/http/bodies/multipart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::string_view kType = "multipart/form-data; boundary=xyz";

std::string error_of(std::string_view type, std::string_view body) {
  const Result<std::vector<FormPart>> parts = read_form(type, body);
  return parts.ok() ? "" : parts.status().message();
}

TEST(Multipart, PartsHaveNameFilenameAndContent) {
  const std::string body =
      "preamble\r\n--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
      "--xyz\r\nContent-Type: application/octet-stream\r\ncontent-disposition: form-data; name=file; "
      "filename=\"a;\\\"b.jsonl\"\r\n\r\n{}\r\n\r\n--xy\r\n\r\n--xyz--\r\n";
  const Result<std::vector<FormPart>> parts = read_form(kType, body);
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_THAT(*parts, SizeIs(2));
  EXPECT_EQ((*parts)[0].name, "purpose");
  EXPECT_EQ((*parts)[0].filename, "");
  EXPECT_EQ((*parts)[0].content, "batch");
  EXPECT_EQ((*parts)[1].name, "file");
  EXPECT_EQ((*parts)[1].filename, "a;\"b.jsonl");
  EXPECT_EQ((*parts)[1].content, "{}\r\n\r\n--xy\r\n") << "a part of the boundary is content";
}

TEST(Multipart, AQuotedBoundaryAndEmptyContentAreRead) {
  const Result<std::vector<FormPart>> parts =
      read_form("Multipart/Form-Data; charset=utf-8; boundary=\"a b\"",
                "--a b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n\r\n--a b--");
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_THAT(*parts, SizeIs(1));
  EXPECT_THAT((*parts)[0].content, IsEmpty());
  EXPECT_THAT(*read_form(kType, "--xyz--\r\n"), IsEmpty()) << "a form without parts";
}

TEST(Multipart, MalformedFormsAreErrors) {
  const std::string part = "--xyz\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\nabc";
  EXPECT_EQ(error_of(kType, part + "\r\n--xyz--"), "");
  EXPECT_THAT(error_of("multipart/form-data", part), HasSubstr("boundary"));
  EXPECT_THAT(error_of(kType, ""), HasSubstr("does not contain its boundary"));
  EXPECT_THAT(error_of(kType, "--xyz"), HasSubstr("ends before its last boundary"));
  EXPECT_THAT(error_of(kType, part), HasSubstr("ends before its last boundary"));
  EXPECT_THAT(error_of(kType, part + "\r\n--xyz"), HasSubstr("ends before its last boundary"));
  EXPECT_THAT(error_of(kType, "--xyzzy\r\n\r\n\r\n--xyz--"), HasSubstr("alone on its line"));
  EXPECT_THAT(error_of(kType, "--xyz\r\nContent-Type: text/plain\r\n\r\nabc\r\n--xyz--"), HasSubstr("part 1"));
  EXPECT_THAT(error_of(kType, "--xyz\r\nabc\r\n--xyz--"), HasSubstr("no empty line"));
  std::string many;
  for (int i = 0; i < 65; ++i) many += "--xyz\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n\r\n";
  EXPECT_THAT(error_of(kType, many + "--xyz--"), HasSubstr("64 parts"));
}

}  // namespace
}  // namespace tessera
