// Catches: a launch command from SGLang's or vLLM's documentation that is refused with "unknown flag"; a flag that is
// taken for a similarly spelled one; a flag that silently has another effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tessera/cli/parse.h"
#include "tessera/device/testing/environment.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Published {
  const char* words;         // the words after "serve"; MODEL stands for a folder
  const char* answer = "";   // part of the expected error; "": the line is accepted
  const char* warning = "";  // part of the expected warning; "": no warning
};

constexpr Published kLines[] = {
    // Commands of SGLang's documentation.
    {"--model-path MODEL --port 30000 --mem-fraction-static 0.7"},
    {"--model-path MODEL --tp 8 --trust-remote-code"},
    {"--model-path MODEL --dp 2 --tp 2"},
    {"--model-path MODEL --tp 4 --dist-init-addr 10.0.0.1:50000 --nnodes 2 --node-rank 0"},
    {"--model-path MODEL --enable-torch-compile --torch-compile-max-bs 8"},
    {"--model-path MODEL --chunked-prefill-size -1 --disable-radix-cache"},
    {"--model-path MODEL --quantization fp8"},
    {"--model-path MODEL --torchao-config int4wo-128",
     "it asks for settings of weights that are quantised at the start"},
    {"--model-path MODEL --kv-cache-dtype fp8_e5m2", "--kv-cache-dtype: \"fp8_e5m2\" is not supported"},
    {"--model-path MODEL --kv-cache-dtype fp8_e4m3"},
    {"--model-path MODEL --kv-cache-dtype q8_0"},
    {"--model-path MODEL --sampling-backend pytorch", "", "--sampling-backend pytorch has no effect"},
    {"--model-path MODEL --enable-mixed-chunk --stream-interval 10 --log-level warning"},
    {"--model-path MODEL --log-requests --log-requests-level 2", "", "--log-requests-level 2 has no effect"},
    {"--model-path MODEL --json-model-override-args {}", "an edited config.json is supported"},
    {"--model-path MODEL --disable-custom-all-reduce", "", "--disable-custom-all-reduce has no effect"},
    {"--model-path MODEL --enable-cache-report --reasoning-parser deepseek-r1 --tool-call-parser qwen25"},
    {"--model-path MODEL --skip-tokenizer-init", "requests with input_ids"},
    {"--model-path MODEL --skip-server-warmup --cuda-graph-bs 1 2 4 8"},
    {"--model-path MODEL --max-prefill-tokens 16384", "", "--chunked-prefill-size is the most tokens"},
    {"--model-path MODEL --enable-hierarchical-cache --hicache-ratio 2", "outside of the device"},
    {"--model-path MODEL --base-gpu-id 4", "--device cuda:N is supported"},
    {"--model-path MODEL --fastapi-root-path /llm", "", "--fastapi-root-path /llm has no effect"},
    {"--model MODEL --root-path /llm", "", "--root-path /llm has no effect"},
    {"--model-path MODEL --sleep-on-idle"},
    {"--model-path MODEL --preferred-sampling-params {}", "generation_config.json of the model"},
    // Commands of vLLM's documentation.
    {"MODEL"},
    {"MODEL --dtype auto --api-key token-abc123"},
    {"--port 8000 MODEL --max-model-len 100"},
    {"MODEL --enable-auto-tool-choice --tool-call-parser llama3_json"},
    {"MODEL --enable-auto-tool-choice --tool-call-parser pythonic", "--tool-call-parser: \"pythonic\""},
    {"MODEL --enable-reasoning --reasoning-parser deepseek_r1"},
    {"MODEL --task generate --limit-mm-per-prompt image=4", "--max-images-per-prompt"},
    {"MODEL -tp 2 -pp=2 --distributed-executor-backend mp"},
    {"MODEL --distributed-executor-backend ray", "", "ranks are threads of one process"},
    {"--model MODEL --served-model-name a b --disable-log-requests --swap-space 0"},
    {"MODEL --swap-space 16", "", "--swap-space 16 has no effect"},
    {"MODEL --tokenizer-mode mistral --load-format mistral", "--load-format: \"mistral\""},
    {"MODEL --speculative-config {}", "speculative decoding"},
    {"MODEL --speculative-config {\"method\":\"medusa\"}", "speculative decoding by SUFFIX"},
    {"MODEL --speculative-config {\"method\":\"eagle3\",\"model\":\"d\",\"num_speculative_tokens\":3}"},
    {"MODEL --speculative-config {\"method\":\"qwen3_next_mtp\",\"num_speculative_tokens\":2}"},
    {"MODEL --speculative-config {\"method\":\"ngram\",\"num_speculative_tokens\":5}"},
    {"MODEL --speculative-config {\"method\":\"draft_model\",\"model\":\"d\",\"num_speculative_tokens\":5}"},
    {"MODEL --speculative-config {\"model\":\"d\",\"num_speculative_tokens\":5}"},
    {"MODEL --speculative-config {\"model\":5}", "speculative decoding by suffix, ngram, mtp, eagle3 and draft_model"},
    {"MODEL --speculative-algorithm STANDALONE --speculative-draft-model-path d --speculative-num-steps 4"},
    {"MODEL --speculative-algorithm AUTO --speculative-num-steps 2"},
    {"MODEL --speculative-algorithm NONE"},
    {"MODEL --speculative-config {\"method\":\"ngram\",\"model\":\"d\"}",
     "method, num_speculative_tokens and quantization are"},
    {"MODEL --speculative-config {\"method\":\"mtp\",\"quantization\":\"fp8\"}"},
    {"MODEL -O3", "--cuda-graph-mode"},
    {"MODEL --compilation-config {}", "--cuda-graph-mode"},
    {"MODEL --async-scheduling --no-enable-prefix-caching"},
    {"MODEL --block-size 16 --seed 42 --tokenizer MODEL"},
    {"MODEL --num-scheduler-steps 8", "", "each step is scheduled by itself"},
    {"MODEL --enable-chunked-prefill --max-num-batched-tokens 8192"},
    {"MODEL --no-enable-chunked-prefill --max-num-batched-tokens 8192", "", "a longer prompt takes several"},
    {"MODEL --hf-overrides {}", "an edited config.json is supported"},
    {"MODEL --generation-config vllm", "fields of requests are supported"},
    {"MODEL --guided-decoding-backend auto --scheduling-policy priority"},
    {"MODEL --ssl-keyfile k --ssl-certfile c --ssl-ca-certs a --enable-ssl-refresh"},
    {"MODEL --ssl-certfile c --ssl-cert-reqs 2", "--ssl-ca-certs asks clients"},
    {"MODEL --allowed-origins [\"*\"]", "--cors-allow-origins is supported"},
    {"MODEL --enable-lora --lora-modules a=b c=d --max-loras 2 --max-lora-rank 8"},
    {"MODEL --download-dir /models", "HF_HOME"},
    {"MODEL --runner pooling", "--is-embedding is supported"},
    {"MODEL --kv-cache-dtype fp8"},
    {"MODEL --kv-cache-dtype fp8_inc", "--kv-cache-dtype: \"fp8_inc\" is not supported"},
    {"MODEL --data-parallel-size 2 --data-parallel-backend mp --disable-log-stats"},
    {"MODEL --api-server-count 4", "one process with several threads"},
    {"MODEL --trust-request-chat-template --max-logprobs 20"},
    {"MODEL --max-logprobs 100", "", "up to 20 alternatives"},
    {"MODEL --enable-request-id-headers", "", "no header X-Request-Id"},
    {"MODEL --disable-sliding-window", "", "--context-length bounds a text"},
    {"MODEL --max-parallel-loading-workers 2", "", "--max-parallel-loading-workers 2 has no effect"},
    {"MODEL --model-path other", "--model-path: given more than once"},
    {"MODEL more", "unexpected argument \"more\""},
};

Result<CommandLine> parse_published(const char* text) {
  std::vector<std::string> words = {"serve"};
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    words.push_back(word == "MODEL" ? testing::data_path("goldens/llama") : word);
  }
  return parse_command_line(shared_built_ins(), words);
}

TEST(PublishedLines, AreAcceptedOrRefusedByName) {
  for (const Published& line : kLines) {
    const Result<CommandLine> parsed = parse_published(line.words);
    if (*line.answer != '\0') {
      EXPECT_THAT(parsed.status().message(), HasSubstr(line.answer)) << line.words;
      continue;
    }
    ASSERT_TRUE(parsed.ok()) << line.words << ": " << parsed.status().message();
    EXPECT_EQ(std::get<ServeOptions>(parsed->command).engine.model_path, testing::data_path("goldens/llama"));
    if (*line.warning == '\0') {
      EXPECT_THAT(parsed->warnings, IsEmpty()) << line.words;
    } else {
      EXPECT_THAT(parsed->warnings, ::testing::ElementsAre(HasSubstr(line.warning))) << line.words;
    }
  }
}

TEST(PublishedLines, VllmsNamesMeanTheSameAsOurs) {
  const Result<CommandLine> line = parse_published(
      "MODEL -tp 2 --served-model-name a b --block-size 8 --seed 7 --task embed --no-enable-chunked-prefill "
      "--stream-interval 4");
  ASSERT_TRUE(line.ok()) << line.status().message();
  const ServeOptions& serve = std::get<ServeOptions>(line->command);
  EXPECT_EQ(serve.engine.tp_size, 2);
  EXPECT_EQ(serve.engine.page_size, 8);
  EXPECT_EQ(serve.engine.random_seed, 7);
  EXPECT_TRUE(serve.engine.is_embedding);
  EXPECT_EQ(serve.engine.chunked_prefill_size, kWholePrompts);
  EXPECT_EQ(serve.server.served_model_name, "a");
  EXPECT_THAT(serve.server.served_aliases, ::testing::ElementsAre("b"));
  EXPECT_EQ(serve.server.stream_interval, 4);
}

TEST(PublishedLines, AFlagWithoutCommandIsNoCommand) {
  EXPECT_THAT(parse_command_line(shared_built_ins(), {"--model-path", "m"}).status().message(),
              HasSubstr("no command stands before --model-path; accepted are serve"));
}

}  // namespace
}  // namespace tessera::cli
