"""TopArticlesLambdaExample of Confluent's examples: the most viewed articles per industry and hour."""

from __future__ import annotations

import heapq

import crossstream as cs

WINDOWED = cs.serdes.windowed(cs.serdes.string(), "1 hour")


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    articles = builder.stream("PageViews").filter(lambda view: "ARTICLE" in view["flags"])
    by_article = articles.group_by(lambda view: f"{view['industry']}/{view['page']}", key=str)
    by_industry = by_article.windowed_by("1 hour").count().group_by(industry_of, key=WINDOWED, value=dict)
    pages = by_industry.aggregate(dict, lambda pages, page: pages | page, without, value=dict)
    pages.map_values(top_two).to("TopNewsPerIndustry", value=list)
    return builder.build()


def industry_of(window: cs.Windowed, views: int) -> tuple[cs.Windowed, dict[str, int]]:
    industry, page = window.key.split("/")
    return cs.Windowed(industry, window.start, window.end), {page: views}


def without(pages: dict[str, int], page: dict[str, int]) -> dict[str, int]:
    return {name: views for name, views in pages.items() if name not in page}


def top_two(pages: dict[str, int]) -> list[str]:
    return heapq.nlargest(2, sorted(pages), key=pages.__getitem__)


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        views = driver.create_input_topic("PageViews")
        news = driver.create_output_topic("TopNewsPerIndustry")
        for page in ["a", "b", "b", "c", "c", "c"]:
            views.pipe_input(None, {"page": page, "industry": "eng", "flags": ["ARTICLE"]})
        assert news.read_key_values_to_map() == {cs.Windowed("eng", 0, 3_600_000): ["c", "b"]}


if __name__ == "__main__":
    main()
