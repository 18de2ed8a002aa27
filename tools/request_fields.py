#!/usr/bin/env python3
"""Compares src/server/fields/request_fields.json with the sources of its fields, and writes the tables
of docs/request-fields.md.

  tools/request_fields.py docs            writes the tables into docs/request-fields.md
  tools/request_fields.py docs --check    status 1 if they are not current; the last line is "N passed, N failed"
    tools/request_fields.py compare FOLDER  prints the fields that only the unpacked packages below FOLDER have, and those
                                          that only the file has; status 1 if there are any. To get the packages:
                                          pip download --no-deps openai==… anthropic==… sglang==… vllm==… ollama==…, with
                                          the versions in the file; unpack each into a folder of its name. For newer
                                          versions, change "versions" in the file as well.
"""

import argparse
import ast
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "src/server/fields/request_fields.json"
DOCS = ROOT / "docs/request-fields.md"
BEGIN = "<!-- request fields: made by tools/request_fields.py docs -->"
END = "<!-- end of request fields -->"

# The sources of each object's fields: the package, the end of the file's path, and the classes.
SOURCES = {
    "chat": [
        ("openai", "types/chat/completion_create_params.py",
         ["CompletionCreateParamsBase", "CompletionCreateParamsStreaming"]),
        ("sglang", "srt/entrypoints/openai/protocol.py", ["ChatCompletionRequest", "PDRoutingFields"]),
        ("vllm", "entrypoints/openai/chat_completion/protocol.py", ["ChatCompletionRequest"])],
    "completions": [
        ("openai", "openai/types/completion_create_params.py",
         ["CompletionCreateParamsBase", "CompletionCreateParamsStreaming"]),
        ("sglang", "srt/entrypoints/openai/protocol.py", ["CompletionRequest", "PDRoutingFields"]),
        ("vllm", "entrypoints/openai/completion/protocol.py", ["CompletionRequest"])],
    "generate": [("sglang", "srt/managers/io_struct.py", ["GenerateReqInput"])],
    "sampling_params": [("sglang", "srt/sampling/sampling_params.py", ["SamplingParams"])],
    "stream_options": [
        ("openai", "types/chat/chat_completion_stream_options_param.py", ["ChatCompletionStreamOptionsParam"]),
        ("sglang", "srt/entrypoints/openai/protocol.py", ["StreamOptions"]),
        ("vllm", "entrypoints/generate/base/protocol.py", ["StreamOptions"])],
    "structured_outputs": [("vllm", "vllm/sampling_params.py", ["StructuredOutputsParams"])],
    "tokenize": [
        ("sglang", "srt/entrypoints/openai/protocol.py", ["TokenizeRequest"]),
        ("vllm", "entrypoints/serve/tokenize/protocol.py", ["TokenizeCompletionRequest", "TokenizeChatRequest"])],
    "embeddings": [
        ("openai", "types/embedding_create_params.py", ["EmbeddingCreateParams"]),
        ("sglang", "srt/entrypoints/openai/protocol.py", ["EmbeddingRequest"]),
        ("vllm", "entrypoints/pooling/base/protocol.py",
         ["PoolingBasicRequestMixin", "CompletionRequestMixin", "EncodingRequestMixin", "EmbedRequestMixin"])],
    "classify": [
        ("sglang", "srt/entrypoints/openai/protocol.py", ["ClassifyRequest"]),
        ("vllm", "entrypoints/pooling/base/protocol.py",
         ["PoolingBasicRequestMixin", "CompletionRequestMixin", "ClassifyRequestMixin"])],
    "rerank": [
        ("sglang", "srt/entrypoints/openai/protocol.py", ["V1RerankReqInput"]),
        ("vllm", "entrypoints/pooling/base/protocol.py", ["PoolingBasicRequestMixin", "ClassifyRequestMixin"]),
        ("vllm", "entrypoints/pooling/scoring/protocol.py", ["ScoringRequestMixin", "RerankRequest"])],
    "score": [
        ("vllm", "entrypoints/pooling/base/protocol.py", ["PoolingBasicRequestMixin", "ClassifyRequestMixin"]),
        ("vllm", "entrypoints/pooling/scoring/protocol.py",
         ["ScoringRequestMixin", "ScoreDataRequest", "ScoreQueriesDocumentsRequest", "ScoreQueriesItemsRequest",
          "ScoreTextRequest"])],
    "label_score": [("sglang", "srt/entrypoints/openai/protocol.py", ["ScoringRequest"])],
    "messages": [
        ("anthropic", "types/message_create_params.py", ["MessageCreateParamsBase", "MessageCreateParamsStreaming"]),
        ("anthropic", "types/beta/message_create_params.py",
         ["MessageCreateParamsBase", "MessageCreateParamsStreaming"])],
    "count_tokens": [
        ("anthropic", "types/message_count_tokens_params.py", ["MessageCountTokensParams"]),
        ("anthropic", "types/beta/message_count_tokens_params.py", ["MessageCountTokensParams"])],
    "responses": [
        ("openai", "types/responses/response_create_params.py",
         ["ResponseCreateParamsBase", "ResponseCreateParamsStreaming"]),
        ("sglang", "srt/entrypoints/openai/protocol.py", ["ResponsesRequest"])],
    "batches": [("openai", "openai/types/batch_create_params.py", ["BatchCreateParams"])],
    "load_adapter": [
        ("sglang", "srt/managers/io_struct.py", ["LoadLoRAAdapterReqInput"]),
        ("vllm", "entrypoints/serve/lora/protocol.py", ["LoadLoRAAdapterRequest"])],
    "unload_adapter": [
        ("sglang", "srt/managers/io_struct.py", ["UnloadLoRAAdapterReqInput"]),
        ("vllm", "entrypoints/serve/lora/protocol.py", ["UnloadLoRAAdapterRequest"])],
    "abort": [("sglang", "srt/managers/io_struct.py", ["BaseReq", "AbortReq"])],
    "close_session": [("sglang", "srt/managers/io_struct.py", ["BaseReq", "CloseSessionReqInput"])],
    "ollama_chat": [
        ("ollama", "ollama/_types.py", ["BaseRequest", "BaseStreamableRequest", "BaseGenerateRequest", "ChatRequest"])],
    "ollama_generate": [
        ("ollama", "ollama/_types.py", ["BaseRequest", "BaseStreamableRequest", "BaseGenerateRequest", "GenerateRequest"])],
    "ollama_options": [("ollama", "ollama/_types.py", ["Options"])],
    "ollama_embed": [("ollama", "ollama/_types.py", ["BaseRequest", "EmbedRequest"])],
    "ollama_embeddings": [("ollama", "ollama/_types.py", ["BaseRequest", "EmbeddingsRequest"])],
    "ollama_show": [("ollama", "ollama/_types.py", ["BaseRequest", "ShowRequest"])],
    "detokenize": [
        ("sglang", "srt/entrypoints/openai/protocol.py", ["DetokenizeRequest"]),
        ("vllm", "entrypoints/serve/tokenize/protocol.py", ["DetokenizeRequest"])],
}
NAMES = {"openai": "OpenAI", "anthropic": "Anthropic", "sglang": "SGLang", "vllm": "vLLM", "tei": "TEI", "ollama": "Ollama"}
TREATMENTS = {"served": "served", "harmless": "harmless", "refused": "refused", "checked": "refused"}


def class_fields(source, classes):
    """Returns the annotated public members of the classes."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name in classes:
            found[node.name] = [
                member.target.id for member in node.body
                if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name)
                and not member.target.id.startswith("_") and "ClassVar" not in ast.unparse(member.annotation)]
    missing = sorted(set(classes) - set(found))
    if missing:
        raise LookupError(f"no class {', '.join(missing)}")
    return {name for names in found.values() for name in names}


def known_fields(folder):
    """Returns {(object, field): packages that have it} for the packages below `folder`."""
    known = {}
    for target, sources in SOURCES.items():
        for package, suffix, classes in sources:
            paths = [p for p in (folder / package).rglob("*.py") if p.as_posix().endswith("/" + suffix)]
            if len(paths) != 1:
                raise LookupError(f"{len(paths)} files end with {suffix} below {folder / package}; expected: 1")
            try:
                fields = class_fields(paths[0].read_text(), classes)
            except LookupError as error:
                raise LookupError(f"{paths[0]}: {error}") from error
            for field in fields:
                known.setdefault((target, field), set()).add(package)
    return known


def differences(data, known):
    """Returns a line for each difference between the file and the packages."""
    listed = {(target, row["name"]): set(by.split()) for row in data["fields"] for target, by in row["on"].items()}
    lines = []
    for key in sorted(set(known) | set(listed)):
        is_known, is_listed = known.get(key, set()), listed.get(key, set())
        for package in sorted(is_known - is_listed):
            lines.append(f"{key[0]}: {package} has {key[1]}, and the file does not say so")
        for package in sorted(is_listed - is_known):
            lines.append(f"{key[0]}: {package} has no {key[1]}, and the file says it has")
    return lines


def shown(value):
    return f"`{json.dumps(value, ensure_ascii=False)}`".replace("|", "\\|")


def remark(row):
    parts = []
    if row["treatment"] == "refused" and row.get("accepted"):
        parts.append("accepted: " + ", ".join(shown(value) for value in row["accepted"]))
    if row.get("remark"):
        parts.append(row["remark"].replace("|", "\\|"))
    if row.get("alone") == "harmless":
        parts.append("without " + " and ".join(f"`{name}`" for name in row["with"]) + " it changes nothing")
    return "; ".join(parts)


def origins(on):
    """Returns the objects that have the field, grouped by the packages that define it: "chat, completions: vLLM;
    sampling_params: –"."""
    groups = {}
    for target, packages in on.items():
        known = ", ".join(name for package, name in NAMES.items() if package in packages.split()) or "–"
        groups.setdefault(known, []).append(target)
    return "; ".join(f"{', '.join(targets)}: {known}" for known, targets in groups.items())


def table(data):
    versions = ", ".join(f"{package} {version}" for package, version in data["versions"].items())
    lines = [f"The fields are those of the Python packages {versions}, and our own (–).", ""]
    for treatment in ("served", "harmless", "refused"):
        rows = {}  # fields with the same name and remark share a row
        for row in data["fields"]:
            if TREATMENTS[row["treatment"]] == treatment:
                rows.setdefault((row["name"], remark(row)), {}).update(row["on"])
        lines += [f"## {treatment.capitalize()}", "", "| field | objects that have it: whose it is | remark |", "|---|---|---|"]
        for (name, words), on in sorted(rows.items(), key=lambda row: (row[0][0], list(row[1]))):
            lines.append(f"| `{name}` | {origins(on)} | {words} |")
        lines.append("")
    return "\n".join(lines)


def with_table(document, data):
    """Returns the document with the table between its marks."""
    begin, end = document.index(BEGIN) + len(BEGIN), document.index(END)
    return document[:begin] + "\n" + table(data) + document[end:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("docs").add_argument("--check", action="store_true")
    commands.add_parser("compare").add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    data = json.loads(DATA.read_text())
    if args.command == "compare":
        lines = differences(data, known_fields(args.folder))
        print("\n".join(lines) or "The file and the packages have the same fields.")
        return 1 if lines else 0
    document = DOCS.read_text()
    wanted = with_table(document, data)
    if not args.check:
        DOCS.write_text(wanted)
        return 0
    if wanted != document:
        print("docs/request-fields.md: its tables are not current; tools/request_fields.py docs writes them")
    print(f"{int(wanted == document)} passed, {int(wanted != document)} failed")
    return int(wanted != document)


if __name__ == "__main__":
    sys.exit(main())
