"""The marketplace of "Crossing the Streams: the new foreign-key join in Kafka Streams", in Python.

Products name the merchant who sells them: a foreign key. The join follows changes of either table.

    python examples/marketplace.py                      # the story below, in this process: no JVM, no broker
    crossstream describe examples/marketplace.py        # the topology; --plan: how it runs on Spark
    crossstream run examples/marketplace.py --topics-dir topics       # on Spark, with your own records

`crossstream demo` runs the same join on Spark, and prints the result changing.
"""

from __future__ import annotations

from dataclasses import dataclass

import crossstream as cs
from crossstream import serdes


@dataclass(frozen=True)
class Product:
    name: str
    price: float
    currency: str
    merchant_id: str


@dataclass(frozen=True)
class Merchant:
    display_name: str
    photo: str


@dataclass(frozen=True)
class DisplayProduct:
    """What the shop window shows."""

    name: str
    price: float
    currency: str
    shop: str
    photo: str


PRODUCT, MERCHANT, DISPLAY_PRODUCT = map(serdes.json, (Product, Merchant, DisplayProduct))


def display(product: Product, merchant: Merchant) -> DisplayProduct:
    return DisplayProduct(
        product.name, product.price, product.currency, merchant.display_name, merchant.photo
    )


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    products = builder.table("products", value=PRODUCT)
    merchants = builder.table("merchants", value=MERCHANT)

    display_products = products.join(
        merchants,
        display,
        foreign_key=lambda product: product.merchant_id,
        table_joined=cs.TableJoined(name="display-products"),
        store="display-products",
        value=DISPLAY_PRODUCT,
    )
    display_products.to("display-products")
    return builder.build()


def main() -> None:
    """The article's test, and the changes that make a foreign-key join hard."""
    with cs.TopologyTestDriver(build()) as driver:
        products = driver.create_input_topic("products", str, PRODUCT)
        merchants = driver.create_input_topic("merchants", str, MERCHANT)
        results = driver.create_output_topic("display-products", str, DISPLAY_PRODUCT)

        print("a merchant and its product")
        merchants.pipe_input("MerchantX", Merchant("Cozy Creations", "http://www.example.com/merchantX.jpeg"))
        products.pipe_input("ProductA", Product("Sweater", 15.00, "USD", "MerchantX"))
        assert results.read_key_values_to_map() == {
            "ProductA": DisplayProduct(
                "Sweater", 15.00, "USD", "Cozy Creations", "http://www.example.com/merchantX.jpeg"
            )
        }

        print("the merchant renames itself: its products change")
        merchants.pipe_input("MerchantX", Merchant("Cosy Corner", "http://www.example.com/merchantX.jpeg"))
        assert [record.value.shop for record in results.read_records()] == ["Cosy Corner"]

        print(
            "the product moves to a merchant who is not there: the row goes, and comes back with the merchant"
        )
        products.pipe_input("ProductA", Product("Sweater", 15.00, "USD", "MerchantY"))
        assert results.read_values() == [None]
        merchants.pipe_input(
            "MerchantY", Merchant("Sweater Weather", "http://www.example.com/merchantY.jpeg")
        )
        assert [record.value.shop for record in results.read_records()] == ["Sweater Weather"]

        print("the old merchant changes: nothing happens any more")
        merchants.pipe_input("MerchantX", Merchant("Cozy Again", "http://www.example.com/merchantX.jpeg"))
        assert results.is_empty

        print("a merchant closes: its products leave the result")
        merchants.pipe_input("MerchantY", None)
        assert results.read_key_values_to_map() == {"ProductA": None}
        assert dict(driver.get_key_value_store("display-products").all()) == {}


if __name__ == "__main__":
    main()
