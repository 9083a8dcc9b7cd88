package crossstream.peer;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.WindowStore;

/** Queries of Nexmark, by {@code --mode nexmark-…}: bids on the left, auctions on the right, and {@code --person}. */
final class Nexmark {
    private static final Serde<String> KEY = Serdes.String();
    private static final Serde<byte[]> VALUE = Serdes.ByteArray();
    private static final Set<String> STATES = Set.of("OR", "ID", "CA");
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Duration LATE = Duration.ofSeconds(4);
    /** How far apart partners of a join may be. */
    private static final Duration LONGEST = Duration.ofDays(1);
    /** Windows are there until they are emitted, and looked up, also where the time jumps. */
    private static final Duration KEPT = Duration.ofDays(3);
    private static final Map<String, String> SELLER = Json.names("name", "city", "state");
    private static final Map<String, String> BID = Json.names(
        "auction", "bidder", "price", "channel", "url", "dateTime=bid_dateTime", "extra=bid_extra");
    private static final Map<String, String> AUCTION = Json.names(
        "itemName", "description", "initialBid", "reserve", "dateTime=auction_dateTime", "expires", "seller", "category",
        "extra=auction_extra");

    private final StreamsBuilder builder;
    private final Arguments arguments;
    private final String prefix;

    Nexmark(StreamsBuilder builder, Arguments arguments, String prefix) {
        this.builder = builder;
        this.arguments = arguments;
        this.prefix = prefix;
    }

    KStream<String, byte[]> build(String query) {
        return switch (query) {
            case "nexmark-q3" -> localItems();
            case "nexmark-q4" -> averagePrices();
            case "nexmark-q5" -> hotItems();
            case "nexmark-q7" -> highestBids();
            case "nexmark-q8" -> newUsers();
            case "nexmark-q20" -> bidsWithAuctions();
            default -> throw new IllegalArgumentException("unknown --mode " + query);
        };
    }

    /** q3: who sells what of category 10 in three states. */
    private KStream<String, byte[]> localItems() {
        KTable<String, byte[]> auctions = table("right").filter((id, auction) -> ofCategory10(auction));
        KTable<String, byte[]> persons = table("person")
            .filter((id, person) -> STATES.contains(Json.field(person, "state")));
        return auctions.join(
            persons,
            auction -> Json.field(auction, "seller"),
            (auction, person) -> Json.joined(auction, Json.names("id"), person, SELLER)).toStream();
    }

    /**
     * q4: the average of the highest bids of a category's auctions. An auction comes before its valid bids, or with them:
     * it is put a millisecond earlier, for records of one time come in any order.
     */
    private KStream<String, byte[]> averagePrices() {
        KTable<String, byte[]> auctions = builder.table(
            arguments.text(prefix + "right"),
            Consumed.with(KEY, VALUE).withTimestampExtractor((auction, newest) -> auction.timestamp() - 1));
        KTable<String, byte[]> winners = stream("left")
            .join(auctions, Nexmark::priceAndCategory, Joined.with(KEY, VALUE, VALUE))
            .filter((id, valid) -> valid.length > 0)
            .groupByKey(Grouped.with(KEY, VALUE))
            .reduce((before, now) -> number(now, 0) > number(before, 0) ? now : before);
        return winners
            .groupBy((id, winner) -> KeyValue.pair(Long.toString(number(winner, 1)), winner), Grouped.with(KEY, VALUE))
            .aggregate(
                () -> numbers(0, 0),
                (category, winner, sum) -> numbers(number(sum, 0) + number(winner, 0), number(sum, 1) + 1),
                (category, winner, sum) -> numbers(number(sum, 0) - number(winner, 0), number(sum, 1) - 1),
                Materialized.with(KEY, VALUE))
            .toStream()
            .filter((category, sum) -> number(sum, 1) > 0)
            .map((category, sum) -> KeyValue.pair(
                category, json("{\"id\":%s,\"final\":%d}", category, number(sum, 0) / number(sum, 1))));
    }

    /** Price and category; nothing for a bid that is not valid. */
    private static byte[] priceAndCategory(byte[] bid, byte[] auction) {
        long[] made = Json.numbers(bid, "price", "dateTime");
        long[] open = Json.numbers(auction, "dateTime", "expires", "category");
        return made[1] < open[0] || made[1] > open[1] ? new byte[0] : numbers(made[0], open[2]);
    }

    /** q5: the auctions with the most bids of ten seconds, every two seconds. */
    private KStream<String, byte[]> hotItems() {
        TimeWindows windows = TimeWindows.ofSizeAndGrace(WINDOW, LATE).advanceBy(Duration.ofSeconds(2));
        return best(stream("left")
            .groupByKey(Grouped.with(KEY, VALUE)).windowedBy(windows).emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>with(KEY, Serdes.Long()).withRetention(KEPT))
            .toStream()
            .map((auction, count) -> KeyValue.pair(start(auction), valued(count, json(
                "{\"starttime\":%s,\"auction\":%s,\"num\":%d}", start(auction), auction.key(), count)))));
    }

    /** q7: the dearest bids of ten seconds: of each auction first, then of all. */
    private KStream<String, byte[]> highestBids() {
        TimeWindows windows = TimeWindows.ofSizeAndGrace(WINDOW, LATE);
        return best(stream("left")
            .mapValues(bid -> valued(Json.numbers(bid, "price")[0], bid))
            .groupByKey(Grouped.with(KEY, VALUE)).windowedBy(windows).emitStrategy(EmitStrategy.onWindowClose())
            .reduce(Nexmark::better,
                Materialized.<String, byte[], WindowStore<Bytes, byte[]>>with(KEY, VALUE).withRetention(KEPT))
            .toStream()
            .selectKey((auction, bids) -> start(auction)));
    }

    /** q8: who entered, and put something up for auction, within the same ten seconds. */
    private KStream<String, byte[]> newUsers() {
        // Auctions come here in the order in which two threads read four partitions: far out of the order of time.
        TimeWindows windows = TimeWindows.ofSizeAndGrace(WINDOW, KEPT);
        Grouped<String, byte[]> grouped = Grouped.with(KEY, VALUE);
        Materialized<String, byte[], WindowStore<Bytes, byte[]>> kept =
            Materialized.<String, byte[], WindowStore<Bytes, byte[]>>with(KEY, VALUE).withRetention(KEPT.plus(WINDOW));
        KTable<Windowed<String>, byte[]> persons =
            stream("person").groupByKey(grouped).windowedBy(windows).reduce((first, next) -> first, kept);
        KTable<Windowed<String>, byte[]> sellers = stream("right")
            .map((id, auction) -> KeyValue.pair(Json.field(auction, "seller"), new byte[] {1}))
            .groupByKey(grouped).windowedBy(windows).reduce((first, next) -> first, kept);
        return persons.join(sellers, (person, seller) -> person).toStream()
            .filter((window, person) -> person != null)
            .map((window, person) -> KeyValue.pair(
                window.key() + "@" + start(window),
                Json.joined(json("{\"starttime\":%s}", start(window)), Json.names("starttime"), person, Json.names("id", "name"))));
    }

    /** q20: bids for auctions of category 10, with what is sold. */
    private KStream<String, byte[]> bidsWithAuctions() {
        JoinWindows windows = JoinWindows.ofTimeDifferenceWithNoGrace(LONGEST);
        return stream("left").join(
            stream("right").filter((id, auction) -> ofCategory10(auction)),
            (bid, auction) -> Json.joined(bid, BID, auction, AUCTION), windows, StreamJoined.with(KEY, VALUE, VALUE));
    }

    /** The best rows of each key, as {"rows": […]}. */
    private static KStream<String, byte[]> best(KStream<String, byte[]> rows) {
        return rows.groupByKey(Grouped.with(KEY, VALUE)).reduce(Nexmark::better).toStream()
            .mapValues(found -> json("{\"rows\":[%s]}", new String(found, 8, found.length - 8, StandardCharsets.UTF_8)));
    }

    /** A number, and the rows that have it. */
    private static byte[] valued(long number, byte[] rows) {
        return ByteBuffer.allocate(8 + rows.length).putLong(number).put(rows).array();
    }

    /** Those with the larger number; both if it is the same. */
    private static byte[] better(byte[] one, byte[] other) {
        int order = Long.compare(number(one, 0), number(other, 0));
        if (order != 0) {
            return order > 0 ? one : other;
        }
        return ByteBuffer.allocate(one.length + other.length - 7)
            .put(one).put((byte) ',').put(other, 8, other.length - 8).array();
    }

    private static byte[] numbers(long first, long second) {
        return ByteBuffer.allocate(16).putLong(first).putLong(second).array();
    }

    private static long number(byte[] numbers, int at) {
        return ByteBuffer.wrap(numbers).getLong(8 * at);
    }

    private static String start(Windowed<String> window) {
        return Long.toString(window.window().start());
    }

    private static byte[] json(String pattern, Object... values) {
        return String.format(pattern, values).getBytes(StandardCharsets.UTF_8);
    }

    private static boolean ofCategory10(byte[] auction) {
        return Json.numbers(auction, "category")[0] == 10;
    }

    private KStream<String, byte[]> stream(String side) {
        return builder.stream(arguments.text(prefix + side), Consumed.with(KEY, VALUE));
    }

    private KTable<String, byte[]> table(String side) {
        return builder.table(arguments.text(prefix + side), Consumed.with(KEY, VALUE));
    }
}
