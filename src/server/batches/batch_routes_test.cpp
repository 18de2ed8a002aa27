// Catches: batches that lose, repeat or mix up answers; batches that do not continue after a restart; batches that a
// client sees although it does not own them; an invalid line or request that stops its whole batch; and files of a
// batch that are not in OpenAI's form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <utility>

#include "tessera/server/batches/batch_test_util.h"
#include "tessera/server/work/classifier_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string erase_file(const std::string& path) { return "DELETE " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"; }
std::string kept_error(const Json& answer) { return answer.find("error")->find("message")->as_string(); }

using BatchRoutesTest = BatchServerTest;

TEST_F(BatchRoutesTest, ABatchAnswersEveryRequest) {
  const Running running(engine(), options());
  const std::string file = put(running, short_line("a") + "\n" + request_line("b", R"("prompt": 5.5)") +
                                            short_line("c", 3) + request_line("d", R"("prompt": "x", "stream": true)"));
  const Json begun = running.json(begin(file));
  EXPECT_EQ(text_in(begun, "status"), "validating");
  EXPECT_EQ(begun.find("metadata")->dump(), R"({"job": "a"})");
  const Json batch = ended(running, text_in(begun, "id"));
  EXPECT_EQ(text_in(batch, "status"), "completed") << batch.dump();
  EXPECT_EQ(counted(batch, "total"), 4);
  EXPECT_EQ(counted(batch, "completed"), 2);
  EXPECT_EQ(counted(batch, "failed"), 2);
  EXPECT_EQ(batch.find("usage")->find("output_tokens")->as_int(), 2 + 3);
  EXPECT_GT(batch.find("usage")->find("input_tokens")->as_int(), 0);
  EXPECT_EQ(*batch.find("usage"), usage_of_lines(running, batch));
  const std::string metrics = running.ask(get("/metrics")).body;
  EXPECT_THAT(metrics, HasSubstr("tessera:batches{status=\"in_progress\"} 0"));
  EXPECT_THAT(metrics, HasSubstr("tessera:batch_requests_left 0"));
  EXPECT_THAT(metrics, ::testing::Not(HasSubstr("tessera:file_storage_bytes 0")));
  const auto answers = lines(running, batch, "output_file_id");
  ASSERT_THAT(answers, SizeIs(2));
  const Json& response = *answers.at("c").find("response");
  EXPECT_EQ(response.find("status_code")->as_int(), 200);
  EXPECT_EQ(response.find("body")->find("usage")->find("completion_tokens")->as_int(), 3);
  EXPECT_EQ(text_of(*response.find("body")),
            text_of(running.json(completion(R"("prompt": "Once", "ignore_eos": true, "max_tokens": 3)"))))
      << "as the live route answers";
  const auto errors = lines(running, batch, "error_file_id");
  ASSERT_THAT(errors, SizeIs(2));
  EXPECT_EQ(errors.at("b").find("response")->find("status_code")->as_int(), 400);
  EXPECT_THAT(kept_error(*errors.at("d").find("response")->find("body")), HasSubstr("no streams"));
}

TEST_F(BatchRoutesTest, AFileWithBadLinesFailsAndNamesThem) {
  const Running running(engine(), options());
  const auto errors_of = [&](const std::string& content, const std::string& endpoint) {
    const Json batch = ended(running, text_in(running.json(begin(put(running, content), endpoint)), "id"));
    EXPECT_EQ(text_in(batch, "status"), "failed");
    std::string all;
    for (const Json& error : batch.find("errors")->find("data")->as_array())
      all += text_in(error, "code") + " " + error.find("line")->dump() + "; ";
    return all;
  };
  EXPECT_EQ(errors_of(short_line("a") + "{\n" + short_line("a"), "/v1/completions"),
            "invalid_line 2; duplicate_custom_id 3; ");
  EXPECT_EQ(errors_of(short_line("a"), "/v1/embeddings"), "mismatched_endpoint 1; ");
  EXPECT_EQ(errors_of("\n", "/v1/completions"), "empty_file null; ");
}

TEST_F(BatchRoutesTest, ABatchGoesOnAfterARestart) {
  std::string content;
  for (int i = 0; i < 40; ++i) content += short_line("r" + std::to_string(i), 20);
  std::string id;
  std::int64_t before = 0;
  {
    const Running running(engine(), options());
    id = text_in(running.json(begin(put(running, content))), "id");
    for (int i = 0; i < 1200 && before == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      before = counted(get_batch(running, id), "completed");
    }
  }
  ASSERT_GT(before, 0);
  Json usage;
  {
    const Running running(engine(), options());
    const Json batch = ended(running, id);
    EXPECT_EQ(text_in(batch, "status"), "completed") << batch.dump();
    EXPECT_EQ(counted(batch, "completed"), 40);
    EXPECT_THAT(lines(running, batch, "output_file_id"), SizeIs(40));
    usage = *batch.find("usage");
    EXPECT_EQ(usage, usage_of_lines(running, batch)) << "with the answers of the first server";
    EXPECT_EQ(usage.find("output_tokens")->as_int(), 40 * 20);
  }
  const Running running(engine(), options());
  EXPECT_EQ(*get_batch(running, id).find("usage"), usage) << "of a batch that has ended";
}

TEST_F(BatchRoutesTest, UsageCountsWhatEachRouteCounts) {
  const Running running(engine(), options());
  const auto line = [](const std::string& url, const std::string& members) {
    return R"({"custom_id": "a", "method": "POST", "url": ")" + url +
           R"(", "body": {"model": "demo", "temperature": 0, )" + members + "}}\n";
  };
  const std::string chat = R"("messages": [{"role": "user", "content": "Once"}], "max_tokens": 3, "ignore_eos": true)";
  for (const auto& [url, members] :
       {std::pair("/v1/chat/completions", chat + R"(, "n": 2)"),
        std::pair("/v1/completions", std::string(R"("prompt": ["a", "b"], "n": 2, "max_tokens": 1)")),
        std::pair("/v1/responses", std::string(R"("input": "Once", "store": false, "max_output_tokens": 16)"))}) {
    const std::string file = put(running, line(url, members));
    const Json batch = ended(running, text_in(running.json(begin(file, url)), "id"));
    ASSERT_EQ(counted(batch, "completed"), 1) << url << batch.dump();
    EXPECT_EQ(*batch.find("usage"), usage_of_lines(running, batch)) << url;
    EXPECT_GT(batch.find("usage")->find("output_tokens")->as_int(), 0) << url;
  }
}

TEST_F(BatchRoutesTest, ClassifiersAnswerAsTheLiveRoute) {
  const test::ScratchDir folder;
  const std::unique_ptr<Engine> classifier =
      *make_classifier(folder.path(), R"({"0": "cat", "1": "dog", "2": "owl"})", "single_label_classification");
  const Running running(*classifier, options());
  const std::string body = R"({"model": "demo", "input": ["The little fox", "A dog"]})";
  const auto line = [](const std::string& id, const std::string& request) {
    return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": "/v1/classify", "body": )" + request + "}\n";
  };
  const std::string file = put(running, line("a", body) + line("b", R"({"model": "demo", "input": []})"));
  const Json batch = ended(running, text_in(running.json(begin(file, "/v1/classify")), "id"));
  EXPECT_EQ(counted(batch, "completed"), 1) << batch.dump();
  EXPECT_EQ(counted(batch, "failed"), 1) << batch.dump();
  const Json answer = *lines(running, batch, "output_file_id").at("a").find("response")->find("body");
  const Json live = running.json(post("/v1/classify", body));
  EXPECT_EQ(answer.find("data")->dump(), live.find("data")->dump());
  EXPECT_EQ(answer.find("data")->as_array().size(), 2u);
  EXPECT_EQ(batch.find("usage")->find("input_tokens")->as_int(), live.find("usage")->find("prompt_tokens")->as_int());
}

TEST_F(BatchRoutesTest, ACancelledBatchKeepsItsAnswers) {
  std::string content;
  for (int i = 0; i < 200; ++i) content += short_line("r" + std::to_string(i), 60);
  const Running running(engine(), options());
  const std::string id = text_in(running.json(begin(put(running, content))), "id");
  for (int i = 0; i < 1200 && counted(get_batch(running, id), "completed") == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const Json told = running.json(post("/v1/batches/" + id + "/cancel", ""));
  EXPECT_EQ(text_in(told, "status"), "cancelling");
  const Json batch = ended(running, id);
  EXPECT_EQ(text_in(batch, "status"), "cancelled") << batch.dump();
  EXPECT_GT(counted(batch, "completed"), 0);
  EXPECT_EQ(counted(batch, "completed") + counted(batch, "failed"), 200);
  const auto errors = lines(running, batch, "error_file_id");
  EXPECT_EQ(std::ssize(errors), counted(batch, "failed"));
  EXPECT_EQ(text_in(*errors.begin()->second.find("error"), "code"), "batch_cancelled");
  EXPECT_EQ(error_code(running.json(post("/v1/batches/" + id + "/cancel", ""), 400)), "batch_ended");
}

TEST_F(BatchRoutesTest, FilesAreListedReadAndDeleted) {
  const Running running(engine(), options());
  std::string large;
  for (int i = 0; i < 30'000; ++i) large += "line " + std::to_string(i) + "\n";
  const std::string first = put(running, large);
  const std::string second = put(running, "");
  EXPECT_EQ(running.ask(get("/v1/files/" + first + "/content")).body, large);
  EXPECT_EQ(running.ask(get("/v1/files/" + second + "/content")).body, "");
  const Json file = running.json(get("/v1/files/" + first));
  EXPECT_EQ(text_in(file, "filename"), "in.jsonl");
  EXPECT_EQ(file.find("bytes")->as_int(), std::ssize(large));
  EXPECT_THAT(running.json(get("/v1/files?purpose=batch")).find("data")->as_array(), SizeIs(2));
  EXPECT_THAT(running.json(get("/v1/files?purpose=vision")).find("data")->as_array(), SizeIs(0));
  const Json page = running.json(get("/v1/files?limit=1"));
  EXPECT_EQ(*page.find("has_more"), Json(true));
  EXPECT_EQ(*running.json(get("/v1/files?limit=1&after=" + text_in(page, "last_id"))).find("has_more"), Json(false));
  EXPECT_EQ(*running.json(erase_file("/v1/files/" + first)).find("deleted"), Json(true));
  EXPECT_EQ(error_code(running.json(get("/v1/files/" + first), 404)), "file_not_found");
}

TEST_F(BatchRoutesTest, BadFormsAndBatchesAreNamed) {
  const Running running(engine(), options());
  EXPECT_THAT(kept_error(running.json(upload("{}", "application/json"), 415)), HasSubstr("multipart/form-data"));
  EXPECT_THAT(kept_error(running.json(upload("{}"), 400)), HasSubstr("boundary"));
  const auto error = [&](const std::string& body) { return kept_error(running.json(upload(body), 400)); };
  std::string other = form("x");
  other.replace(other.find("batch"), 5, "vision");
  EXPECT_THAT(error(other), HasSubstr("\"purpose\" is \"vision\"; accepted: \"batch\""));
  const std::string field = "--B\r\nContent-Disposition: form-data; name=";
  EXPECT_THAT(error(form("x", field + "\"expires_after[seconds]\"\r\n\r\n5\r\n")), HasSubstr("3600 to 2592000"));
  EXPECT_THAT(error(form("x", field + "\"color\"\r\n\r\nred\r\n")), HasSubstr("\"color\" is not known"));
  EXPECT_THAT(error(field + "\"purpose\"\r\n\r\nbatch\r\n--B--"), HasSubstr("no field \"file\""));

  EXPECT_EQ(error_code(running.json(begin("file-0"), 404)), "file_not_found");
  EXPECT_THAT(kept_error(running.json(begin(put(running, "x"), "/v1/rerank"), 400)),
              HasSubstr("\"/v1/embeddings\", \"/v1/classify\" or \"/v1/responses\""));
  EXPECT_EQ(error_code(running.json(get("/v1/batches/batch_0"), 404)), "batch_not_found");
  EXPECT_EQ(error_code(running.json(get("/v1/files/file-0/text"), 404)), "unknown_url");
}

TEST_F(BatchRoutesTest, AKeyReachesOnlyItsOwnFilesAndBatches) {
  ServerOptions keyed = options();
  keyed.api_keys = {"one", "two"};
  const Running running(engine(), keyed);
  const std::string file = text_in(running.json(sent_by("one", upload(form(short_line("a"))))), "id");
  EXPECT_EQ(running.ask(sent_by("two", get("/v1/files/" + file))).status, 404);
  EXPECT_EQ(running.ask(sent_by("two", get("/v1/files/" + file + "/content"))).status, 404);
  EXPECT_EQ(running.ask(sent_by("two", begin(file))).status, 404);
  const std::string batch = text_in(running.json(sent_by("one", begin(file))), "id");
  EXPECT_EQ(running.ask(sent_by("two", get("/v1/batches/" + batch))).status, 404);
  EXPECT_EQ(running.ask(sent_by("two", post("/v1/batches/" + batch + "/cancel", ""))).status, 404);
  EXPECT_THAT(running.json(sent_by("two", get("/v1/batches"))).find("data")->as_array(), SizeIs(0));
  EXPECT_THAT(running.json(sent_by("one", get("/v1/batches"))).find("data")->as_array(), SizeIs(1));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
    if (!entry.is_regular_file()) continue;
    EXPECT_EQ(read_text_file(entry.path().string())->find("\"one\""), std::string::npos) << "the key is on the disk";
  }
}

TEST_F(BatchRoutesTest, TheOneClientKeyOwnsWhatHasNoOwner) {
  std::string file, batch;
  {
    // A server without keys writes no owner, like earlier versions with one key.
    const Running running(engine(), options());
    file = put(running, short_line("a"));
    batch = text_in(running.json(begin(file)), "id");
    ended(running, batch);
  }
  const auto status = [&](const Running& running, const std::string& key, const std::string& path) {
    return running.ask(sent_by(key, get(path))).status;
  };
  ServerOptions keyed = options();
  keyed.api_keys = {"one", "two"};
  keyed.admin_api_keys = {"adm"};
  {
    const Running running(engine(), keyed);
    EXPECT_EQ(status(running, "one", "/v1/batches/" + batch), 404) << "two keys may have made it";
  }
  keyed.api_keys = {"one"};
  const std::string first = file;
  {
    const Running running(engine(), keyed);
    for (const std::string& path : {"/v1/files/" + file, "/v1/batches/" + batch}) {
      EXPECT_EQ(status(running, "one", path), 200) << path;
      EXPECT_EQ(status(running, "adm", path), 404) << path;
    }
    file = text_in(running.json(sent_by("adm", upload(form(short_line("a"))))), "id");
    EXPECT_EQ(status(running, "one", "/v1/files/" + file), 404);
  }
  keyed.api_keys = {"one", "two"};
  const Running running(engine(), keyed);
  for (const std::string& path : {"/v1/files/" + first, "/v1/batches/" + batch}) {
    EXPECT_EQ(status(running, "one", path), 200) << path << " belongs to it for good";
    EXPECT_EQ(status(running, "two", path), 404) << path;
  }
  EXPECT_EQ(status(running, "adm", "/v1/files/" + file), 200);
}

TEST_F(BatchRoutesTest, ABatchWithoutAnOwnerContinuesUnderLaterKeys) {
  std::string content;
  for (int i = 0; i < 40; ++i) content += short_line("r" + std::to_string(i), 20);
  std::string id;
  {
    const Running running(engine(), options());
    id = text_in(running.json(begin(put(running, content))), "id");
  }
  ServerOptions keyed = options();
  keyed.api_keys = {"one"};
  {
    const Running running(engine(), keyed);
    for (int i = 0; i < 1200 && counted(get_batch(running, id, "one"), "completed") == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(text_in(get_batch(running, id, "one"), "status"), "in_progress");
  }
  keyed.api_keys = {"one", "two"};
  const Running running(engine(), keyed);
  const Json batch = ended(running, id, "one");
  EXPECT_EQ(text_in(batch, "status"), "completed") << batch.dump();
  EXPECT_EQ(counted(batch, "completed"), 40);
}

TEST_F(BatchRoutesTest, WithoutAFolderTheRoutesSaySo) {
  const Running running(engine());
  for (const std::string& request :
       {upload(form("x")), get("/v1/files"), get("/v1/files/file-0"), begin("file-0"), get("/v1/batches"),
        erase_file("/v1/files/file-0"), post("/v1/batches/batch_0/cancel", "")})
    EXPECT_EQ(error_code(running.json(request, 501)), "files_disabled") << request;
}

}  // namespace
}  // namespace tessera::testing
