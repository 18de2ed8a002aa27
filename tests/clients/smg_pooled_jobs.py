"""smg in front of two servers of embeddings."""

from gateway import Gateway, servers
from jobs import NAME, check, counted, main


def embeddings():
    answer = gateway.expect("/v1/embeddings", {"model": NAME, "input": ["Hi", "there"], "dimensions": 8})
    check([len(entry["embedding"]) for entry in answer["data"]] == [8, 8], answer)


def ranking():
    body = {"model": NAME, "query": "the fox", "documents": ["a house", "the fox"]}
    for path in ("/v1/rerank", "/rerank"):
        best = gateway.expect(path, body)["results"][0]
        check(best["index"] == 1 and best["document"] == "the fox" and best["score"] > 0.99, best)


def ranking_of_the_best():
    results = gateway.expect("/rerank", {"model": NAME, "query": "the fox", "documents": ["a house", "the fox"], "top_k": 1,
                                         "return_documents": False})["results"]
    check(len(results) == 1 and results[0]["index"] == 1 and not results[0].get("document"), results)


def both_servers_were_asked():
    done = [counted(worker, "num_requests_total") for worker in gateway.workers]
    check(all(done), done)


with servers(2, ["--is-embedding"]) as urls, Gateway(urls, "round_robin") as gateway:
    main(embeddings, ranking, ranking_of_the_best, both_servers_were_asked)
