// Catches: images that do not reach the engine, or reach it in the wrong order, at the wrong place in the prompt, or
// with another number of tokens than the tower computes; token counts that omit images; and images that are not read
// because they have the form of another protocol.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/http/http_test_util.h"
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

template <class Prepare>
ApiJob prepared_with_images(const Prepare& prepare, const std::string& body,
                            const ServedModel& model = vision_model()) {
  ApiResult<ApiJob> job = prepare(model, body);
  EXPECT_TRUE(job.ok()) << body.substr(0, 300) << "\n" << job.error().message;
  return job.ok() ? *std::move(job) : ApiJob{.requests = std::vector<Request>(1)};
}

// Returns the prompt's text, in which "[6]" stands for a run of 6 placeholders.
std::string shown(const Request& request) {
  std::string text = test::vision_tokenizer().decode(request.prompt, /*skip_special=*/false);
  const std::string pad = "<|image_pad|>";
  for (std::size_t at = 0; (at = text.find(pad, at)) != std::string::npos;) {
    std::size_t count = 0;
    while (text.compare(at + count * pad.size(), pad.size(), pad) == 0) ++count;
    text.replace(at, count * pad.size(), "[" + std::to_string(count) + "]");
  }
  return text;
}

// Returns "FIRST+COUNT" for each image: the index of its first token in the prompt, and the number of its tokens.
// Checks that these tokens, and no others, are placeholders.
std::vector<std::string> places(const Request& request) {
  std::vector<std::string> all;
  std::int64_t tokens = 0;
  for (const PromptImage& image : request.images) {
    tokens += image.patches->tokens();
    all.push_back(fmt::format("{}+{}", image.first_token, image.patches->tokens()));
    for (std::int64_t i = 0; i < image.patches->tokens(); ++i)
      EXPECT_EQ(request.prompt[static_cast<std::size_t>(image.first_token + i)], TokenId(test::kImagePad));
  }
  EXPECT_EQ(std::count(request.prompt.begin(), request.prompt.end(), TokenId(test::kImagePad)), tokens);
  return all;
}

TEST(ImageRequests, ImagesStandWhereTheirPartsDo) {
  const std::string parts = text_part("a") + "," + image_part(data_url(ppm(84, 56))) + "," + text_part("b") + "," +
                            image_part(data_url(ppm(56, 112, 9))) + "," + text_part("c");
  const Request request = prepared_with_images(prepare_chat, image_chat(parts)).requests[0];
  EXPECT_EQ(shown(request),
            "system:s;user:a<|vision_start|>[6]<|vision_end|>b<|vision_start|>[8]<|vision_end|>c;assistant:");
  EXPECT_THAT(places(request), SizeIs(2));
  ASSERT_THAT(request.images, SizeIs(2));
  EXPECT_EQ(request.images[0].patches->grid, (PatchGrid{1, 4, 6}));  // in patches: rows, columns
  EXPECT_EQ(request.images[1].patches->grid, (PatchGrid{1, 8, 4}));
  EXPECT_NE(request.images[0].patches->content, request.images[1].patches->content);
}

TEST(ImageRequests, ReadsSpellingsOfOtherProtocols) {
  const std::string url = data_url(ppm(56, 56));
  const std::string expected = "system:s;user:<|vision_start|>[4]<|vision_end|>a;assistant:";
  for (const std::string& image : {image_part(url), R"({"type": "image_url", "image_url": ")" + url + "\"}",
                                   R"({"type": "input_image", "detail": "auto", "image_url": ")" + url + "\"}"}) {
    for (const char* text : {R"({"type": "text", "text": "a"})", R"({"type": "input_text", "text": "a"})"}) {
      EXPECT_EQ(shown(prepared_with_images(prepare_chat, image_chat(image + "," + text)).requests[0]), expected)
          << image;
    }
  }
}

TEST(ImageRequests, TheContentDeterminesTheImageType) {
  const auto content = [](const std::string& url) {
    return prepared_with_images(prepare_chat, image_chat(image_part(url))).requests[0].images[0].patches->content;
  };
  const Hash128 expected = content(data_url(ppm(56, 56)));
  EXPECT_EQ(content(data_url(ppm(56, 56), "text/html")), expected);
  EXPECT_EQ(content(data_url(ppm(56, 56), "")), expected);
  EXPECT_EQ(content("DATA" + data_url(ppm(56, 56)).substr(4)), expected);
  EXPECT_NE(content(data_url(ppm(56, 56, 8))), expected);
}

TEST(ImageRequests, LowDetailIsAtMost512By512Pixels) {
  ServedModel model = vision_model();
  model.images->processor.max_pixels = 28 * 28 * 1280;
  model.context_length = 4000;
  const auto tokens = [&](const std::string& detail) {
    const std::string part = R"({"type": "image_url", "image_url": {"url": ")" + data_url(ppm(1120, 560)) +
                             R"(", "detail": ")" + detail + "\"}}";
    return prepared_with_images(prepare_chat, image_chat(part), model).requests[0].images[0].patches->tokens();
  };
  EXPECT_EQ(tokens("high"), 40 * 20);
  EXPECT_EQ(tokens("auto"), 40 * 20);
  EXPECT_LE(tokens("low") * 28 * 28, 512 * 512);
  EXPECT_GT(tokens("low") * 28 * 28, 400 * 512);
}

TEST(ImageRequests, ChoicesShareTheirImages) {
  const ApiJob job = prepared_with_images(prepare_chat, image_chat(image_part(data_url(ppm(56, 56))), R"(, "n": 3)"));
  ASSERT_THAT(job.requests, SizeIs(3));
  EXPECT_EQ(job.requests[0].images[0].patches, job.requests[2].images[0].patches);
}

TEST(ImageRequests, MemoryIsReleasedWithTheLastRequest) {
  const ServedModel model = vision_model();
  {
    const ApiJob job = prepared_with_images(prepare_chat, image_chat(image_part(data_url(ppm(56, 56)))), model);
    EXPECT_EQ(model.images->memory->used(), 16 * 3 * 2 * 14 * 14 * 4);
  }
  EXPECT_EQ(model.images->memory->used(), 0);
}

TEST(ImageRequests, TextsWithoutImagesAreUnchanged) {
  const Request request =
      prepared_with_images(prepare_chat, image_chat(text_part("u") + "," + text_part("v"))).requests[0];
  EXPECT_EQ(shown(request), "system:s;user:u\nv;assistant:");
  EXPECT_THAT(request.images, SizeIs(0));
}

TEST(ImageRequests, GenericToolsKeepTheImages) {
  ServedModel model = vision_model();
  model.context_length = 2000;
  model.tool_call_parser = "generic";
  const std::string body = R"({"messages": [{"role": "user", "content": [)" + image_part(data_url(ppm(56, 56))) + "," +
                           text_part("q") + R"(]}], "tools": [{"type": "function", "function": {"name": "f"}}]})";
  const std::string text = shown(prepared_with_images(prepare_chat, body, model).requests[0]);
  EXPECT_THAT(text, HasSubstr("<|vision_start|>[4]<|vision_end|>q;assistant:"));
  EXPECT_THAT(text, HasSubstr("{\"name\": \"f\"}"));
}

TEST(ImageRequests, UsageCountsTheTokensOfImages) {
  ApiJob job = prepared_with_images(prepare_chat, image_chat(image_part(data_url(ppm(84, 56)))));
  std::string stream;
  const std::int64_t prompt_tokens = std::ssize(job.requests[0].prompt);
  Completion end{.prompt_tokens = prompt_tokens};
  job.answer->on_event(0, {.finish = FinishReason::kStop}, &end, stream);
  const std::string body = job.answer->body();
  EXPECT_THAT(body, HasSubstr(fmt::format("\"prompt_tokens\":{},", prompt_tokens)));
  EXPECT_THAT(body, HasSubstr("\"prompt_tokens_details\":{\"cached_tokens\":0,\"image_tokens\":6}"));
}

std::string generate(const std::string& members) { return "{" + members + "}"; }
const std::string kOne = R"("text": "a<|vision_start|><|image_pad|><|vision_end|>b", "image_data": )";

TEST(ImageRequests, ReadsSglangsImageData) {
  const std::string file = ppm(84, 56);
  const std::string expected = "a<|vision_start|>[6]<|vision_end|>b";
  for (const std::string& image :
       {"\"" + data_url(file) + "\"", "\"" + to_base64(file) + "\"", "[\"" + to_base64(file) + "\"]",
        R"({"url": ")" + data_url(file) + R"(", "detail": "auto"})"}) {
    EXPECT_EQ(shown(prepared_with_images(prepare_generate, generate(kOne + image)).requests[0]), expected)
        << image.substr(0, 80);
  }
  ApiJob job = prepared_with_images(prepare_generate, generate(kOne + "\"" + to_base64(file) + "\""));
  std::string stream;
  Completion end{.prompt_tokens = 9};
  job.answer->on_event(0, {.finish = FinishReason::kStop}, &end, stream);
  EXPECT_THAT(job.answer->body(), HasSubstr("\"image_tokens\":6"));
}

TEST(ImageRequests, ABatchHasImagesForEachPrompt) {
  const std::string small = "\"" + to_base64(ppm(56, 56)) + "\"";
  const std::string large = "\"" + to_base64(ppm(84, 56)) + "\"";
  const ApiJob job = prepared_with_images(
      prepare_generate, generate(R"("text": ["a<|image_pad|>", "b", "c<|image_pad|>d<|image_pad|>"], "image_data": [)" +
                                 small + ", null, [" + large + ", " + small + "]]"));
  ASSERT_THAT(job.requests, SizeIs(3));
  EXPECT_EQ(shown(job.requests[0]), "a[4]");
  EXPECT_EQ(shown(job.requests[1]), "b");
  EXPECT_EQ(shown(job.requests[2]), "c[6]d[4]");
}

TEST(ImageRequests, IdsMayHaveTheirPlaceholdersAlready) {
  const std::string image = R"(, "image_data": ")" + to_base64(ppm(56, 56)) + "\"";
  const auto ids = [&](const std::string& list) {
    return prepared_with_images(prepare_generate, generate(R"("input_ids": )" + list + image)).requests[0];
  };
  EXPECT_THAT(places(ids("[5, 2050, 6]")), ElementsAre("1+4"));
  EXPECT_THAT(places(ids("[5, 2050, 2050, 2050, 2050, 6]")), ElementsAre("1+4"));
  const std::string chat = R"({"messages": [{"role": "user", "content": [)" + image_part(data_url(ppm(56, 56))) +
                           R"(]}], "input_ids": [7, 8, 2050]})";
  EXPECT_THAT(places(prepared_with_images(prepare_chat, chat).requests[0]), ElementsAre("2+4"));
}

TEST(ImageRequests, UrlsAreFetchedIfAllowed) {
  testing::TestServer site([](const HttpExchange& exchange) {
    exchange.respond({.content_type = "text/plain", .body = test::ppm(84, 56)});
  });
  ServedModel model = vision_model();
  UrlFetchOptions options{.may_connect = [](const sockaddr&) { return true; }};
  model.images->fetcher = std::make_shared<const UrlFetcher>(*UrlFetcher::create(std::move(options)));
  const std::string url = fmt::format("http://127.0.0.1:{}/a.png", site.port());
  EXPECT_THAT(places(prepared_with_images(prepare_chat, image_chat(image_part(url)), model).requests[0]), SizeIs(1));
  EXPECT_EQ(shown(prepared_with_images(prepare_generate, generate(kOne + "\"" + url + "\""), model).requests[0]),
            "a<|vision_start|>[6]<|vision_end|>b");
}

}  // namespace
}  // namespace tessera
