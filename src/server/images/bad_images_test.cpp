// Catches: an error about a wrong image that does not name the content part and the limit; an image that a text model
// silently accepts; text that passes as an image placeholder; and images that use memory without a limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tessera/server/images/vision_test_model.h"
#include "tessera/server/openai/chat_request.h"
#include "tessera/server/openai/generate_request.h"

namespace tessera {
namespace {

using test::data_url;
using test::image_chat;
using test::image_part;
using test::ppm;
using test::text_part;
using test::vision_model;
using ::testing::HasSubstr;

struct BadImage {
  std::string body;
  std::string param;
  std::string message;  // part of the error's message
  int status = 400;
};

template <class Prepare>
void expect_image_errors(const Prepare& prepare, const std::vector<BadImage>& cases,
                         const ServedModel& model = vision_model()) {
  for (const BadImage& bad : cases) {
    SCOPED_TRACE(bad.body.substr(0, 300) + " " + bad.message);
    const auto result = prepare(model, bad.body);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().http_status, bad.status) << result.error().message;
    EXPECT_EQ(result.error().param, bad.param) << result.error().message;
    EXPECT_THAT(result.error().message, HasSubstr(bad.message));
    EXPECT_LT(result.error().message.size(), 700u);
    EXPECT_TRUE(Json::parse(result.error().to_json(), "error").ok());
    EXPECT_EQ(model.images->memory->used(), 0);
  }
}

std::string read_data(const std::string& name) {
  std::ifstream file(testing::source_path("tests/data/image/" + name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const std::string kUrl = "messages[1].content[1].image_url.url";
// Each function makes a case whose second content part is the bad image. url() takes the image's URL, file() the bytes
// of the image's file, and part() the JSON of the whole content part.
BadImage url(const std::string& text, const std::string& message) {
  return {image_chat(text_part("a") + "," + image_part(text)), kUrl, message};
}
BadImage file(const std::string& bytes, const std::string& message) { return url(data_url(bytes), message); }
BadImage part(const std::string& json, const std::string& param, const std::string& message) {
  return {image_chat(text_part("a") + "," + json), "messages[1].content[1]" + param, message};
}

TEST(BadImage, RefusesUrlsThatAreNoImages) {
  expect_image_errors(prepare_chat, {
                                        url("", "no URL of an image; accepted: data:<type>;base64,<content>"),
                                        url("image.png", "is no URL of an image"),
                                        url("/etc/passwd", "is no URL of an image"),
                                        url("file:///etc/passwd", "is no URL of an image"),
                                        url("data:image/png", "a data: URL that is not of base64"),
                                        url("data:image/png,abc", "a data: URL that is not of base64"),
                                        url("data:image/png;base64,", "request: field \"" + kUrl + "\": "),
                                        url("data:image/png;base64,abc", "is no base64"),
                                        url("data:image/png;base64,ab c", "is no base64"),
                                        url("data:image/png;base64,ab-_", "is no base64"),
                                        url("http://example.com/a.png", "--allow-image-urls"),
                                        url("HTTPS://example.com/a.png", "--allow-image-urls"),
                                        url(std::string(100'000, 'x'), "is no URL of an image"),
                                    });
}

TEST(BadImage, RefusesFilesThatAreNoImages) {
  const std::string png = read_data("rgb.png");
  std::string claims = png;
  claims.replace(16, 8, std::string("\x00\x01\x86\xa0\x00\x01\x86\xa0", 8));  // claims 100000 × 100000 pixels
  expect_image_errors(prepare_chat, {
                                        file("not an image", "field"),
                                        file("<svg xmlns='http://www.w3.org/2000/svg'/>", "field"),
                                        file("GIF89a..........", "field"),
                                        file(png.substr(0, png.size() / 2), "field"),
                                        file(claims, "field"),
                                        file("P6 1 100000 255\n", "field"),
                                        file("P6 0 0 255\n", "field"),
                                        file(ppm(401, 2), "200"),
                                        file(read_data("animated.webp"), "animated"),
                                    });
}

TEST(BadImage, RefusesMalformedParts) {
  const std::string good = data_url(ppm(56, 56));
  expect_image_errors(
      prepare_chat,
      {
          part(R"({"type": "image_url"})", ".image_url", "missing; accepted: an object with \"url\""),
          part(R"({"type": "image_url", "image_url": 5})", ".image_url", "is 5; accepted: an object with \"url\""),
          part(R"({"type": "image_url", "image_url": {}})", ".image_url.url", "missing; accepted: a string"),
          part(R"({"type": "image_url", "image_url": {"url": 5}})", ".image_url.url", "is 5"),
          part(R"({"type": "image_url", "image_url": {"url": ")" + good + R"(", "detail": "best"}})",
               ".image_url.detail", "is \"best\"; accepted: \"low\", \"high\" or \"auto\""),
          part(R"({"type": "image_url", "image_url": {"url": ")" + good + R"(", "max_pixels": 5}})",
               ".image_url.max_pixels", "accepted: none"),
          part(R"({"type": "input_image", "file_id": "f"})", ".file_id", "accepted: \"image_url\" instead"),
          part(R"({"type": "input_image"})", ".image_url", "missing; accepted: a URL"),
          part(R"({"type": "input_image", "image_url": ")" + good + R"(", "detail": 1})", ".detail", "a string"),
          part(R"({"type": "video_url"})", ".type",
               R"(accepted: "text", "input_text", "output_text", "image_url" or "input_image")"),
      });
}

TEST(BadImage, RefusesMoreThanTheLimits) {
  std::string parts;
  for (int i = 0; i < 100; ++i) parts += (i > 0 ? "," : "") + image_part(data_url(ppm(56, 56)));
  const std::string big = image_part(data_url(ppm(224, 224)));  // takes 64 tokens; the context has 256
  ServedModel small = vision_model();
  small.images->limits.most_bytes = 100;
  small.images->limits.most_pixels = 1000;
  expect_image_errors(
      prepare_chat,
      {
          {image_chat(parts), "messages[1].content[16].image_url.url", "one of 100 images; accepted: up to 16"},
          {image_chat(big + "," + big + "," + big + "," + big + "," + big), "messages[1].content[4].image_url.url",
           "224 × 224 pixels, with which the images come to 320 tokens; accepted: up to 256"},
          {image_chat(big + "," + big + "," + big + "," + big), "messages", "context length"},
      });
  expect_image_errors(prepare_chat, {file(ppm(56, 56), "100"), file("P6 40 30 255\n", "1000")}, small);
}

// The error names the first wrong image, and the images keep their order, for any number of preparing threads.
TEST(BadImage, NamesTheFirstOfSeveralWrongImages) {
  std::vector<std::string> urls;
  for (int i = 0; i < 12; ++i) urls.push_back(data_url(ppm(28 * (1 + i % 4), 56)));
  const auto given = [&] {
    std::vector<GivenImage> images;
    for (std::size_t i = 0; i < urls.size(); ++i)
      images.push_back({.text = urls[i], .param = "images[" + std::to_string(i) + "]"});
    return images;
  };
  for (const int threads : {0, 3, 64}) {
    SCOPED_TRACE(threads);
    const ServedModel model = vision_model();
    *model.images->free_threads = threads;
    ApiResult<PreparedImages> good = prepare_images(*model.images, given(), 1 << 20);
    ASSERT_TRUE(good.ok());
    for (std::size_t i = 0; i < urls.size(); ++i) {
      const GivenImage alone{.text = urls[i]};
      EXPECT_EQ((*good)[i]->content, (*prepare_images(*model.images, {&alone, 1}, 1 << 20))[0]->content) << i;
    }
    for (int time = 0; time < 20; ++time) {
      std::vector<GivenImage> wrong = given();
      wrong[5].text = "data:image/png;base64,!";
      wrong[9].text = "data:,";
      const ApiResult<PreparedImages> refused = prepare_images(*model.images, wrong, 1 << 20);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().param, "images[5]");
      const ApiResult<PreparedImages> large = prepare_images(*model.images, wrong, 3);
      ASSERT_FALSE(large.ok());
      EXPECT_EQ(large.error().code, "context_length_exceeded") << large.error().message;
      EXPECT_EQ(large.error().param, "images[0]");
    }
    EXPECT_EQ(model.images->free_threads->load(), threads);
  }
}

TEST(BadImage, MemoryThatOtherRequestsHoldIs503) {
  ServedModel model = vision_model();
  // An image of 16 patches takes 16 · 2 · 3 · 14 · 14 floats, which are 75264 bytes, and some more while it is
  // prepared.
  model.images->memory = std::make_shared<MemoryBudget>(150'000);
  const std::string body = image_chat(image_part(data_url(ppm(56, 56))));
  const ApiResult<ApiJob> first = prepare_chat(model, body);
  ASSERT_TRUE(first.ok());
  const ApiResult<ApiJob> second = prepare_chat(model, body);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().http_status, 503);
  EXPECT_GT(second.error().retry_after_s, 0);
  EXPECT_EQ(model.images->memory->used(), 75264);
}

// An image is resized first in width and then in height. The intermediate image of a tall image is therefore large: it
// has all rows of the original, in the new width.
TEST(BadImage, ResizedRowsBeyondTheBudgetAreRefused) {
  constexpr std::int64_t kWidth = 15;
  constexpr std::int64_t kHeight = 2800;
  const std::string file = ppm(kWidth, kHeight);
  const std::string text = data_url(file);
  const GivenImage given{.text = text, .low_detail = true, .param = "image"};
  ServedModel model = vision_model();
  // The image is resized to 28 × 364 pixels. This is more than max_pixels, because no side becomes shorter than one
  // token, which is 28 pixels.
  model.images->processor = {.temporal_patch_size = 1, .min_pixels = 28 * 28, .max_pixels = 28 * 28};
  constexpr std::int64_t kResized = std::int64_t{28} * 364 * 3;
  constexpr std::int64_t kPatches = kResized * 4;
  constexpr std::int64_t kRows = 28 * kHeight * 3;
  const std::int64_t source = std::ssize(file) + kWidth * kHeight * 3;
  const auto prepare = [&](std::int64_t available) {
    // `available` is the budget without its last sixteenth, which only small requests may use.
    model.images->memory = std::make_shared<MemoryBudget>(available + available / 15 + 1);
    return prepare_images(*model.images, {&given, 1}, 1 << 20);
  };
  const ApiResult<PreparedImages> refused = prepare(source + kResized + kRows - 1000);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().http_status, 413) << refused.error().message;
  EXPECT_EQ(model.images->memory->used(), 0);
  const ApiResult<PreparedImages> prepared = prepare(source + kResized + kRows + 1000);
  ASSERT_TRUE(prepared.ok()) << prepared.error().message;
  EXPECT_EQ(model.images->memory->used(), kPatches);
  // Checks that the refused call had enough memory to decode the image, and enough for the patches and twice the
  // resized pixels. Only the intermediate image can therefore have been too large.
  EXPECT_GT(source + kResized + kRows - 1000, std::ssize(file) + kWidth * kHeight * 8);
  EXPECT_GT(source + kResized + kRows - 1000, source + kPatches + 2 * kResized);
}

// A small file whose header claims many pixels.
TEST(BadImage, PixelsBeyondTheBudgetAreNotDecoded) {
  ServedModel model = vision_model();
  model.images->memory = std::make_shared<MemoryBudget>(1'000'000);
  const std::string body = image_chat(image_part(data_url("P6 4000 4000 255\n" + std::string(100, 'x'))));
  const ApiResult<ApiJob> job = prepare_chat(model, body);
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.error().http_status, 413) << job.error().message;
  EXPECT_EQ(model.images->memory->used(), 0);
}

TEST(BadImage, RefusesTextsThatContainThePlaceholder) {
  const std::string image = image_part(data_url(ppm(56, 56)));
  const std::string said = "which stands for an image";
  expect_image_errors(
      prepare_chat,
      {
          {image_chat(text_part("a <|image_pad|> b")), "messages[1].content[0].text", said},
          {image_chat(image + "," + text_part("<|image_pad|>")), "messages[1].content[1].text", said},
          {R"({"messages": [{"role": "user", "content": "<|image_pad|>"}]})", "messages[0].content", said},
          {image_chat(image, R"(, "tools": [{"type": "function", "function": {"name": "f",
              "description": "<|image_pad|>"}}])"),
           "tools[0].function.description", said},
          // The template joins these two texts into a placeholder.
          {image_chat(text_part("<|image_") + "," + text_part("pad|>") + "," + image), "messages",
           "writes 2 placeholders (\"<|image_pad|>\") for 1 images"},
      });
}

TEST(BadImage, RefusesTemplatesWithoutImages) {
  ServedModel model = vision_model();
  model.chat = *ChatTemplate::parse(test::kTestTemplate);
  expect_image_errors(prepare_chat,
                      {{image_chat(image_part(data_url(ppm(56, 56)))), "messages", "writes 0 placeholders"}}, model);
}

TEST(BadImage, RefusesFieldsThatContradictImages) {
  const std::string image = image_part(data_url(ppm(56, 56)));
  const std::string last = R"({"messages": [{"role": "assistant", "content": [)" + image + "]}], ";
  expect_image_errors(prepare_chat,
                      {
                          {last + R"("continue_final_message": true})", "continue_final_message", "images"},
                          {last + R"("echo": true})", "echo", "images"},
                          {image_chat(image, R"(, "truncate_prompt_tokens": 5)"), "truncate_prompt_tokens",
                           "none where a longer prompt has images"},
                      });
}

TEST(BadImage, RefusesWrongImageData) {
  const std::string good = "\"" + to_base64(ppm(56, 56)) + "\"";
  const auto one = [](const std::string& text, const std::string& data) {
    return R"({"text": )" + text + R"(, "image_data": )" + data + "}";
  };
  const std::string text = "\"a<|image_pad|>\"";
  expect_image_errors(prepare_generate,
                      {
                          {one(text, "5"), "image_data", "is 5; accepted: an object with \"url\""},
                          {one(text, "\"image.png\""), "image_data", "is no base64"},
                          {one(text, "[\"\"]"), "image_data[0]", "field"},
                          {one(text, "[" + good + "," + good + "]"), "image_data", "1 placeholders"},
                          {one("\"a\"", good), "image_data", "0 placeholders"},
                          {one("[\"a\", \"b\"]", good), "image_data", "a list of 2"},
                          {one("[\"a\", " + text + "]", "[null, [" + good + ", 7]]"), "image_data[1][1]", "is 7"},
                          {one("[\"a\"]", "[[{\"url\": \"x\"}]]"), "image_data[0][0].url", "is no base64"},
                          {R"({"input_ids": [2050, 2050, 5, 2050, 2050], "image_data": )" + good + "}", "image_data",
                           "image 0 lacks 2 of the 4 placeholders that its tokens need"},
                          {R"({"input_embeds": [[1, 2, 3, 4]], "image_data": )" + good + "}", "image_data", "beside"},
                      });
}

TEST(BadImage, ATextModelRefusesImages) {
  const ServedModel model = test::test_model();
  const ApiResult<ApiJob> chat = prepare_chat(model, image_chat(image_part(data_url(ppm(56, 56)))));
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.error().param, "messages[1].content[0].type");
  EXPECT_THAT(chat.error().message, HasSubstr("this model reads no images"));
  // The messages of a request with token ids are not rendered, but a text model still refuses images in them.
  std::string beside = image_chat(image_part(data_url(ppm(56, 56))));
  beside.insert(1, R"("input_ids": [5], )");
  const ApiResult<ApiJob> ids = prepare_chat(model, beside);
  ASSERT_FALSE(ids.ok());
  EXPECT_THAT(ids.error().message, HasSubstr("this model reads no images"));
  const ApiResult<ApiJob> data = prepare_generate(model, R"({"text": "a", "image_data": "abcd"})");
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.error().param, "image_data");
  EXPECT_EQ(data.error().http_status, 400);
  EXPECT_TRUE(prepare_generate(model, R"({"text": "a", "image_data": [null]})").ok());
}

}  // namespace
}  // namespace tessera
