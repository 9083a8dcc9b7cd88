-- A bank of which every transaction keeps four sums at zero: entries; accounts less their entries; branches less their
-- accounts; the entries that transfers count less those there are.
CREATE TABLE branches (id int PRIMARY KEY, cents bigint NOT NULL);
CREATE TABLE accounts (id int PRIMARY KEY, branch_id int NOT NULL, cents bigint NOT NULL);
CREATE TABLE transfers (id bigint PRIMARY KEY, entries int NOT NULL);
CREATE TABLE entries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transfer_id bigint, account_id int NOT NULL, cents bigint NOT NULL
);
CREATE INDEX ON entries (transfer_id);
INSERT INTO branches SELECT n, 0 FROM generate_series(1, 12) n;
INSERT INTO accounts SELECT n, 1 + n % 12, 0 FROM generate_series(1, 400) n;

-- What each transaction added to the balance of an account at a branch. No connector reads it.
CREATE TABLE audit (xid bigint NOT NULL, account_id int NOT NULL, branch_id int NOT NULL, cents bigint NOT NULL);
CREATE INDEX ON audit (xid);

CREATE FUNCTION mine() RETURNS bigint LANGUAGE sql AS 'SELECT pg_current_xact_id()::text::bigint';

-- Rows are locked table by table and in the order of their ids, so no two writers wait for each other.
CREATE FUNCTION post_to_branches() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM branches WHERE id IN (SELECT branch_id FROM audit WHERE xid = mine()) ORDER BY id FOR UPDATE;
    UPDATE branches b SET cents = b.cents + a.cents
    FROM (SELECT branch_id, sum(cents) AS cents FROM audit WHERE xid = mine() GROUP BY branch_id) a
    WHERE b.id = a.branch_id;
END $$;

CREATE FUNCTION post(who int[], amounts bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM accounts WHERE id = ANY (who) ORDER BY id FOR UPDATE;
    WITH posted AS (
        UPDATE accounts a SET cents = a.cents + p.cents
        FROM (SELECT id, sum(cents) AS cents FROM unnest(who, amounts) AS p (id, cents) GROUP BY id) p
        WHERE a.id = p.id RETURNING a.id, a.branch_id, p.cents
    )
    INSERT INTO audit SELECT mine(), id, branch_id, cents FROM posted;
    PERFORM post_to_branches();
END $$;

-- 2 to 18 accounts, mostly few: up to 49 rows.
CREATE FUNCTION transfer(id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    size int := 2 + floor(17 * random() ^ 6);
    who int[] := ARRAY(SELECT a.id FROM accounts a ORDER BY random() LIMIT size);
    amounts bigint[] := ARRAY(SELECT floor(1 + 1000 * random()) FROM generate_series(2, size));
BEGIN
    amounts := amounts || -(SELECT sum(cents) FROM unnest(amounts) cents)::bigint;
    INSERT INTO entries (transfer_id, account_id, cents) SELECT transfer.id, * FROM unnest(who, amounts);
    IF random() < 0.1 THEN  -- a part of the transaction is rolled back
        BEGIN
            UPDATE accounts SET cents = cents + 1000000 WHERE accounts.id = (SELECT min(a) FROM unnest(who) a);
            INSERT INTO transfers VALUES (transfer.id, -1);
            RAISE SQLSTATE 'BANK1';
        EXCEPTION WHEN SQLSTATE 'BANK1' THEN
        END;
    END IF;
    PERFORM post(who, amounts);
    INSERT INTO transfers VALUES (transfer.id, size);
END $$;

CREATE FUNCTION reverse(id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    who int[];
    amounts bigint[];
BEGIN
    DELETE FROM transfers WHERE transfers.id = reverse.id;
    WITH gone AS (DELETE FROM entries WHERE transfer_id = reverse.id RETURNING account_id, -cents AS cents)
    SELECT array_agg(account_id), array_agg(cents) INTO who, amounts FROM gone;
    PERFORM post(who, amounts);
END $$;

-- A transfer had another amount: two entries, two accounts, one or two branches.
CREATE FUNCTION correct(id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    more bigint := floor(1 + 100 * random());
    which bigint[] := ARRAY(SELECT e.id FROM entries e WHERE transfer_id = correct.id ORDER BY e.id LIMIT 2);
BEGIN
    UPDATE entries SET cents = cents + more WHERE entries.id = which[1];
    UPDATE entries SET cents = cents - more WHERE entries.id = which[2];
    PERFORM post(array_agg(account_id ORDER BY e.id), ARRAY[more, -more])
    FROM entries e WHERE e.id = ANY (which) HAVING count(*) = 2;
END $$;

-- An account goes to another branch: three rows, and all its entries count there.
CREATE FUNCTION move(id int, branch int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    account accounts;
BEGIN
    SELECT * INTO account FROM accounts a WHERE a.id = move.id FOR UPDATE;
    UPDATE accounts SET branch_id = branch WHERE accounts.id = move.id;
    INSERT INTO audit VALUES
        (mine(), id, account.branch_id, -account.cents), (mine(), id, branch, account.cents);
    PERFORM post_to_branches();
END $$;

-- An entry and its counterpart at the same account, both of which the next one deletes: two rows.
CREATE FUNCTION counter(writer int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    more bigint := floor(1 + 1000 * random());
BEGIN
    DELETE FROM entries WHERE transfer_id = -writer;
    IF NOT FOUND THEN
        INSERT INTO entries (transfer_id, account_id, cents)
        SELECT -writer, account, amount
        FROM floor(1 + random() * 400) account, unnest(ARRAY[more, -more]) amount;
    END IF;
END $$;

CREATE TABLE closing ();
CREATE TABLE resting ();
CREATE SEQUENCE transfer_ids;

-- So many transactions unless the bank closes or rests, each 50th rolled back, with `pause` seconds between them on average.
-- A writer has at most 40 transfers.
CREATE PROCEDURE work(writer int, transactions int, pause float8) LANGUAGE plpgsql AS $$
DECLARE
    kind float8;
    made bigint[] := '{}';  -- transfers of this writer
    id bigint;
    kept bool;
BEGIN
    PERFORM setseed(writer / 1000.0);
    FOR number IN 1..transactions LOOP
        WHILE EXISTS (SELECT FROM resting) LOOP
            COMMIT;
            PERFORM pg_sleep(0.2);
        END LOOP;
        EXIT WHEN EXISTS (SELECT FROM closing);
        PERFORM pg_advisory_xact_lock_shared(1);  -- until the end of the transaction
        kind := random();
        kept := number % 50 > 0;
        IF cardinality(made) < 3 OR kind < 0.4 AND cardinality(made) < 40 THEN
            id := nextval('transfer_ids');
            PERFORM transfer(id);
            made := CASE WHEN kept THEN made || id ELSE made END;
        ELSIF kind < 0.8 THEN
            id := made[1 + floor(random() * cardinality(made))];
            IF kind < 0.7 THEN
                PERFORM reverse(id);
                made := CASE WHEN kept THEN array_remove(made, id) ELSE made END;
            ELSE
                PERFORM correct(id);
            END IF;
        ELSIF kind < 0.9 THEN
            PERFORM move((1 + floor(random() * 400))::int, (1 + floor(random() * 12))::int);
        ELSE
            PERFORM counter(writer);
        END IF;
        IF kept THEN COMMIT; ELSE ROLLBACK; END IF;
        PERFORM pg_sleep(2 * pause * random());
    END LOOP;
END $$;
