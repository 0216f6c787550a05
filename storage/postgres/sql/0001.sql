-- The ledger. If the URL names another schema, its name replaces `spillgate` in each statement. Times are Unix ms.

CREATE TABLE spillgate.written_by (
  one boolean PRIMARY KEY DEFAULT true CHECK (one), number integer NOT NULL, version text NOT NULL
);

CREATE TABLE spillgate.sessions (
  tenant text COLLATE "C" NOT NULL, session_id text COLLATE "C" NOT NULL, epoch bigint NOT NULL,
  created_at bigint NOT NULL, last_used_at bigint NOT NULL, context_window bigint, buffer_tokens bigint,
  max_output_tokens bigint, model text, policy text, used_tokens bigint, turn bigint,
  reserved_tokens bigint NOT NULL, ended_at bigint, reports text NOT NULL, seal bytea NOT NULL,
  PRIMARY KEY (tenant, session_id)
) WITH (fillfactor = 70);
COMMENT ON COLUMN spillgate.sessions.seal IS 'Random bytes of the last change.';
CREATE INDEX sessions_ended ON spillgate.sessions (tenant, ended_at) WHERE ended_at IS NOT NULL;

-- Receipts and findings of a session, by "epoch:id of the call" and "epoch:name".
CREATE TABLE spillgate.receipts (
  tenant text COLLATE "C" NOT NULL, session_id text COLLATE "C" NOT NULL, call text COLLATE "C" NOT NULL,
  at bigint NOT NULL, entry_id text COLLATE "C" NOT NULL, packed bytea NOT NULL,
  PRIMARY KEY (tenant, session_id, call)
);
CREATE TABLE spillgate.findings (
  tenant text COLLATE "C" NOT NULL, session_id text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  text bytea NOT NULL,
  PRIMARY KEY (tenant, session_id, name)
);

CREATE SEQUENCE spillgate.entry_numbers;
CREATE TABLE spillgate.entries (
  seq bigint NOT NULL DEFAULT nextval('spillgate.entry_numbers'),
  id text COLLATE "C" NOT NULL, tenant text COLLATE "C" NOT NULL, session_id text COLLATE "C" NOT NULL,
  type text NOT NULL, "timestamp" bigint NOT NULL, status text NOT NULL, tool_name text NOT NULL, trigger text,
  outcome text, model text, handle text COLLATE "C", latency double precision NOT NULL, bytes bigint NOT NULL,
  tokens_in bigint NOT NULL, tokens_out bigint NOT NULL, tokens_saved bigint NOT NULL,
  cost_usd double precision NOT NULL, observed_tokens_saved bigint NOT NULL, strategy text, tool_kind text,
  key text, client text, stored boolean NOT NULL, asked_back boolean NOT NULL, found_nothing boolean NOT NULL,
  costs_more boolean NOT NULL, size integer NOT NULL, rest text
) PARTITION BY RANGE ("timestamp");
COMMENT ON COLUMN spillgate.entries.rest IS 'What no other column holds of the entry, as JSON.';
COMMENT ON COLUMN spillgate.entries.size IS 'The bytes that the entry counts for in the bound of its tenant.';
CREATE UNIQUE INDEX entries_of_tenant ON spillgate.entries (tenant, "timestamp", id);
CREATE INDEX entries_of_session ON spillgate.entries (tenant, session_id, "timestamp");
CREATE INDEX entries_of_handle ON spillgate.entries (tenant, handle) WHERE handle IS NOT NULL;
CREATE INDEX entries_of_gaps ON spillgate.entries (tenant, "timestamp") WHERE type IN ('unrecorded', 'lost');
-- Entries of days that have no partition: those that are too old, and those of a clock that is ahead.
CREATE TABLE spillgate.entries_other PARTITION OF spillgate.entries DEFAULT;

-- Days of UTC, numbered since 1970. For a `closed` day, day_sums includes all entries; for other days only deleted
-- entries.
CREATE TABLE spillgate.days (
  day integer PRIMARY KEY, closed boolean NOT NULL DEFAULT false, partition text
);

CREATE TABLE spillgate.day_sums (
  tenant text COLLATE "C" NOT NULL, day integer NOT NULL, is_merged boolean NOT NULL, type text NOT NULL,
  tool_name text, trigger text, outcome text, status text NOT NULL, model text, strategy text, tool_kind text,
  key text, client text, entries bigint NOT NULL, failed bigint NOT NULL, bytes bigint NOT NULL,
  tokens_in bigint NOT NULL, tokens_out bigint NOT NULL, tokens_saved bigint NOT NULL,
  latency double precision NOT NULL, cost_usd double precision NOT NULL, tokens_saved_observed bigint NOT NULL,
  stored bigint NOT NULL, asked_back bigint NOT NULL, found_nothing bigint NOT NULL, costs_more bigint NOT NULL,
  latency_max double precision NOT NULL
);
COMMENT ON COLUMN spillgate.day_sums.is_merged IS
  'Groups that are not told apart by tool_name, tool_kind, client, nor, but for model calls, by model.';
CREATE INDEX day_sums_of_day ON spillgate.day_sums (day, tenant);

-- Some entries of a tenant up to `deleted`, and some sums of days up to `forgotten`, are missing.
CREATE TABLE spillgate.histories (
  tenant text COLLATE "C" PRIMARY KEY, deleted bigint NOT NULL DEFAULT -1, forgotten bigint NOT NULL DEFAULT 0
);

-- The usage of a tenant is the sum over its slots. Connections that write at the same time use different slots.
CREATE TABLE spillgate.usages (
  tenant text COLLATE "C" NOT NULL, slot smallint NOT NULL, sessions bigint NOT NULL, entries bigint NOT NULL,
  bytes bigint NOT NULL,
  PRIMARY KEY (tenant, slot)
) WITH (fillfactor = 30);

CREATE TABLE spillgate.pulse (one boolean PRIMARY KEY DEFAULT true CHECK (one), beat bigint NOT NULL, jump_ms bigint);
INSERT INTO spillgate.pulse (beat) VALUES (0);

-- The amounts of each entry by which summaries add up.
CREATE VIEW spillgate.amounts AS
SELECT tenant, ("timestamp" / 86400000)::integer AS day, false AS is_merged, type, tool_name, trigger, outcome,
  status, model, strategy, tool_kind, key, client, 1::bigint AS entries, (status = 'failed')::integer::bigint AS failed,
  bytes, tokens_in, tokens_out, tokens_saved, latency, cost_usd, observed_tokens_saved AS tokens_saved_observed,
  stored::integer::bigint AS stored, asked_back::integer::bigint AS asked_back,
  found_nothing::integer::bigint AS found_nothing, costs_more::integer::bigint AS costs_more,
  latency AS latency_max, "timestamp", session_id, handle
FROM spillgate.entries;

-- Views for reporting tools: grant SELECT on these two.
CREATE VIEW spillgate.report_entries AS
SELECT tenant, session_id, to_timestamp("timestamp" / 1000.0) AS at, id, type, status, tool_name, tool_kind, trigger,
  outcome, model, strategy, key, client, handle, latency AS latency_ms, bytes, tokens_in, tokens_out, tokens_saved,
  observed_tokens_saved, cost_usd, stored, asked_back, found_nothing, costs_more, rest
FROM spillgate.entries;
CREATE VIEW spillgate.report_days AS
SELECT tenant, DATE '1970-01-01' + day AS day, type, tool_name, tool_kind, trigger, outcome, status, model, strategy,
  key, client, sum(entries)::bigint AS entries, sum(failed)::bigint AS failed, sum(bytes)::bigint AS bytes,
  sum(tokens_in)::bigint AS tokens_in, sum(tokens_out)::bigint AS tokens_out,
  sum(tokens_saved)::bigint AS tokens_saved, sum(cost_usd) AS cost_usd
FROM (
  SELECT tenant, day, type, tool_name, tool_kind, trigger, outcome, status, model, strategy, key, client, entries,
    failed, bytes, tokens_in, tokens_out, tokens_saved, cost_usd
  FROM spillgate.day_sums
  UNION ALL
  SELECT tenant, day, type, tool_name, tool_kind, trigger, outcome, status, model, strategy, key, client, entries,
    failed, bytes, tokens_in, tokens_out, tokens_saved, cost_usd
  FROM spillgate.amounts WHERE day NOT IN (SELECT day FROM spillgate.days WHERE closed)
) AS both_kinds
GROUP BY tenant, day, type, tool_name, tool_kind, trigger, outcome, status, model, strategy, key, client;

CREATE FUNCTION spillgate.count_usage(p_tenant text, p_sessions bigint, p_entries bigint, p_bytes bigint)
RETURNS void LANGUAGE sql AS $$
  INSERT INTO spillgate.usages AS used (tenant, slot, sessions, entries, bytes)
  VALUES (p_tenant, pg_backend_pid() % 32, p_sessions, p_entries, p_bytes)
  ON CONFLICT (tenant, slot) DO UPDATE SET sessions = used.sessions + excluded.sessions,
    entries = used.entries + excluded.entries, bytes = used.bytes + excluded.bytes
$$;

-- Writes a step if the session still has `p_seal` (NULL: if there is no session). Without `p_new_seal` the session
-- itself is not written. Returns false, and writes nothing, if the seal differs or `p_call` has a receipt.
CREATE FUNCTION spillgate.step(
  p_tenant text, p_session text, p_seal bytea, p_new_seal bytea, p_only_use boolean, p_epoch bigint,
  p_created_at bigint, p_last_used_at bigint, p_context_window bigint, p_buffer_tokens bigint,
  p_max_output_tokens bigint, p_model text, p_policy text, p_used_tokens bigint, p_turn bigint,
  p_reserved_tokens bigint, p_ended_at bigint, p_reports text, p_sessions integer, p_bytes bigint, p_ends boolean,
  p_call text, p_replaces boolean, p_finding text, p_once boolean, p_text bytea,
  p_id text, p_type text, p_timestamp bigint, p_status text, p_tool_name text, p_trigger text, p_outcome text,
  p_entry_model text, p_handle text, p_latency double precision, p_entry_bytes bigint, p_tokens_in bigint,
  p_tokens_out bigint, p_tokens_saved bigint, p_cost_usd double precision, p_observed_tokens_saved bigint,
  p_strategy text, p_tool_kind text, p_key text, p_client text, p_stored boolean, p_asked_back boolean,
  p_found_nothing boolean, p_costs_more boolean, p_size integer, p_rest text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  more bigint := p_bytes;
  added integer := 0;
  old bigint;
BEGIN
  IF NOT p_replaces AND p_call IS NOT NULL AND EXISTS (
    SELECT FROM spillgate.receipts WHERE tenant = p_tenant AND session_id = p_session AND call = p_call
  ) THEN
    RETURN false;
  END IF;
  IF p_new_seal IS NULL THEN
    IF EXISTS (SELECT FROM spillgate.sessions WHERE tenant = p_tenant AND session_id = p_session) THEN
      RETURN false;
    END IF;
  ELSE
    IF p_seal IS NULL THEN
      INSERT INTO spillgate.sessions VALUES (p_tenant, p_session, p_epoch, p_created_at, p_last_used_at,
        p_context_window, p_buffer_tokens, p_max_output_tokens, p_model, p_policy, p_used_tokens, p_turn,
        p_reserved_tokens, p_ended_at, p_reports, p_new_seal) ON CONFLICT DO NOTHING;
    ELSIF p_only_use THEN
      UPDATE spillgate.sessions
      SET last_used_at = p_last_used_at, reserved_tokens = p_reserved_tokens, seal = p_new_seal
      WHERE tenant = p_tenant AND session_id = p_session AND seal = p_seal;
    ELSE
      UPDATE spillgate.sessions
      SET epoch = p_epoch, created_at = p_created_at, last_used_at = p_last_used_at,
        context_window = p_context_window, buffer_tokens = p_buffer_tokens,
        max_output_tokens = p_max_output_tokens, model = p_model, policy = p_policy,
        used_tokens = p_used_tokens, turn = p_turn, reserved_tokens = p_reserved_tokens, ended_at = p_ended_at,
        reports = p_reports, seal = p_new_seal
      WHERE tenant = p_tenant AND session_id = p_session AND seal = p_seal;
    END IF;
    IF NOT FOUND THEN
      RETURN false;
    END IF;
  END IF;
  IF p_ends THEN
    WITH gone AS (
      DELETE FROM spillgate.findings WHERE tenant = p_tenant AND session_id = p_session
      RETURNING octet_length(text) AS size
    )
    SELECT more - coalesce(sum(size), 0) INTO more FROM gone;
  END IF;
  IF p_finding IS NOT NULL THEN
    SELECT octet_length(text) INTO old FROM spillgate.findings
    WHERE tenant = p_tenant AND session_id = p_session AND name = p_finding;
    IF NOT (FOUND AND p_once) THEN
      INSERT INTO spillgate.findings VALUES (p_tenant, p_session, p_finding, p_text)
      ON CONFLICT (tenant, session_id, name) DO UPDATE SET text = excluded.text;
      more := more + octet_length(p_text) - coalesce(old, 0);
    END IF;
  END IF;
  IF p_call IS NOT NULL AND p_id IS NOT NULL THEN
    IF p_replaces THEN
      DELETE FROM spillgate.receipts WHERE tenant = p_tenant AND session_id = p_session AND call = p_call
      RETURNING octet_length(packed) INTO old;
      more := more - coalesce(old, 0);
    END IF;
    INSERT INTO spillgate.receipts VALUES (p_tenant, p_session, p_call, p_timestamp, p_id, p_text)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      -- Undoes all of the step.
      RAISE EXCEPTION 'settled before' USING ERRCODE = 'SG001';
    END IF;
    more := more + octet_length(p_text);
  END IF;
  IF p_id IS NOT NULL THEN
    INSERT INTO spillgate.entries (id, tenant, session_id, type, "timestamp", status, tool_name, trigger, outcome,
      model, handle, latency, bytes, tokens_in, tokens_out, tokens_saved, cost_usd, observed_tokens_saved, strategy,
      tool_kind, key, client, stored, asked_back, found_nothing, costs_more, size, rest)
    VALUES (p_id, p_tenant, p_session, p_type, p_timestamp, p_status, p_tool_name, p_trigger, p_outcome,
      p_entry_model, p_handle, p_latency, p_entry_bytes, p_tokens_in, p_tokens_out, p_tokens_saved, p_cost_usd,
      p_observed_tokens_saved, p_strategy, p_tool_kind, p_key, p_client, p_stored, p_asked_back, p_found_nothing,
      p_costs_more, p_size, p_rest)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      added := 1;
      more := more + p_size;
    END IF;
  END IF;
  IF p_sessions <> 0 OR added <> 0 OR more <> 0 THEN
    -- The same as count_usage, inlined: the call would take a tenth of this function's time.
    INSERT INTO spillgate.usages AS used (tenant, slot, sessions, entries, bytes)
    VALUES (p_tenant, pg_backend_pid() % 32, p_sessions, added, more)
    ON CONFLICT (tenant, slot) DO UPDATE SET sessions = used.sessions + excluded.sessions,
      entries = used.entries + excluded.entries, bytes = used.bytes + excluded.bytes;
  END IF;
  RETURN true;
END $$;

-- Forgets a session that was last used up to `p_used_until`, or that ended up to `p_ended_until`.
CREATE FUNCTION spillgate.forget(p_tenant text, p_session text, p_used_until bigint, p_ended_until bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  found_one spillgate.sessions;
  freed bigint;
BEGIN
  SELECT * INTO found_one FROM spillgate.sessions WHERE tenant = p_tenant AND session_id = p_session FOR UPDATE;
  IF NOT FOUND OR (CASE WHEN found_one.ended_at IS NULL THEN found_one.last_used_at > p_used_until
    ELSE found_one.ended_at > p_ended_until END) THEN
    RETURN false;
  END IF;
  WITH receipts AS (
    DELETE FROM spillgate.receipts WHERE tenant = p_tenant AND session_id = p_session
    RETURNING octet_length(packed) AS size
  ), findings AS (
    DELETE FROM spillgate.findings WHERE tenant = p_tenant AND session_id = p_session
    RETURNING octet_length(text) AS size
  )
  SELECT coalesce(sum(size), 0) INTO freed FROM (SELECT size FROM receipts UNION ALL SELECT size FROM findings) AS gone;
  DELETE FROM spillgate.sessions WHERE tenant = p_tenant AND session_id = p_session;
  PERFORM spillgate.count_usage(p_tenant, -(found_one.ended_at IS NULL)::integer, 0,
    -freed - 1024 - octet_length(coalesce(found_one.policy, '')) - length(coalesce(found_one.model, '')));
  RETURN true;
END $$;

-- Makes transactions that delete entries of a day, and those that close the day, wait for each other.
CREATE FUNCTION spillgate.hold_day(p_day integer, p_alone boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_alone THEN
    PERFORM pg_advisory_xact_lock('spillgate.days'::regclass::oid::integer, p_day);
  ELSE
    PERFORM pg_advisory_xact_lock_shared('spillgate.days'::regclass::oid::integer, p_day);
  END IF;
END $$;

-- Adds entries to the sums of their days: either those of closed days, or those of the other days.
CREATE FUNCTION spillgate.add_sums(p_entries spillgate.entries[], p_closed boolean) RETURNS void LANGUAGE sql AS $$
  INSERT INTO spillgate.day_sums
  SELECT tenant, ("timestamp" / 86400000)::integer, false, type, tool_name, trigger, outcome, status, model, strategy,
    tool_kind, key, client, count(*), count(*) FILTER (WHERE status = 'failed'), sum(bytes), sum(tokens_in),
    sum(tokens_out), sum(tokens_saved), sum(latency), sum(cost_usd), sum(observed_tokens_saved),
    count(*) FILTER (WHERE stored), count(*) FILTER (WHERE asked_back), count(*) FILTER (WHERE found_nothing),
    count(*) FILTER (WHERE costs_more), max(latency)
  FROM unnest(p_entries)
  WHERE p_closed = (("timestamp" / 86400000)::integer IN (SELECT day FROM spillgate.days WHERE closed))
  GROUP BY tenant, ("timestamp" / 86400000)::integer, type, tool_name, trigger, outcome, status, model, strategy,
    tool_kind, key, client
$$;

-- Deletes up to `p_most` of the oldest entries: of a tenant until `p_surplus` bytes are free, or, without a tenant,
-- those up to `p_until`. With `p_sums` they are added to the sums of their days.
CREATE FUNCTION spillgate.delete_entries(
  p_tenant text, p_until bigint, p_surplus bigint, p_most integer, p_sums boolean, OUT deleted bigint, OUT freed bigint
) LANGUAGE plpgsql AS $$
DECLARE
  gone spillgate.entries[];
  held integer[];
  chosen text := CASE WHEN p_tenant IS NULL THEN '$1 IS NULL AND "timestamp" <= $2' ELSE 'tenant = $1 AND $2 IS NULL' END;
BEGIN
  EXECUTE format('SELECT array_agg(DISTINCT ("timestamp" / 86400000)::integer) FROM (SELECT "timestamp"'
    ' FROM spillgate.entries WHERE %s ORDER BY "timestamp", seq LIMIT $3) AS oldest', chosen)
  INTO held USING p_tenant, p_until, p_most;
  PERFORM spillgate.hold_day(day, false) FROM (SELECT unnest(held) AS day ORDER BY 1) AS days;
  EXECUTE format($q$
    WITH oldest AS MATERIALIZED (
      SELECT tenant, "timestamp", id, size FROM spillgate.entries
      WHERE %s AND ("timestamp" / 86400000)::integer = ANY ($5) ORDER BY "timestamp", seq LIMIT $3
      FOR UPDATE SKIP LOCKED
    ), chosen AS (
      SELECT *, sum(size) OVER (ORDER BY "timestamp", id ROWS UNBOUNDED PRECEDING) - size AS before FROM oldest
    ), deleted AS (
      DELETE FROM spillgate.entries AS e USING chosen AS c
      WHERE e.tenant = c.tenant AND e."timestamp" = c."timestamp" AND e.id = c.id AND c.before < $4
      RETURNING e
    )
    SELECT array_agg(e) FROM deleted
  $q$, chosen) INTO gone USING p_tenant, p_until, p_most, p_surplus, held;
  deleted := coalesce(cardinality(gone), 0);
  SELECT coalesce(sum(size), 0) INTO freed FROM unnest(gone);
  IF deleted = 0 THEN
    RETURN;
  END IF;
  IF p_sums THEN
    PERFORM spillgate.add_sums(gone, false);
  END IF;
  INSERT INTO spillgate.histories AS known (tenant, deleted)
  SELECT tenant, max("timestamp") FROM unnest(gone) GROUP BY tenant ORDER BY tenant
  ON CONFLICT (tenant) DO UPDATE SET deleted = greatest(known.deleted, excluded.deleted);
  PERFORM spillgate.count_usage(tenant, 0, -count(*), -sum(size)) FROM unnest(gone) GROUP BY tenant;
END $$;

CREATE FUNCTION spillgate.add_late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM spillgate.add_sums(ARRAY[NEW::spillgate.entries], true);
  RETURN NULL;
END $$;
CREATE TRIGGER add_late AFTER INSERT ON spillgate.entries_other FOR EACH ROW EXECUTE FUNCTION spillgate.add_late();

-- Makes the partition of a day.
CREATE FUNCTION spillgate.open_day(p_day integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  name text := 'entries_' || to_char(DATE '1970-01-01' + p_day, 'YYYYMMDD');
  since bigint := p_day * 86400000::bigint;
BEGIN
  PERFORM spillgate.hold_day(p_day, true);
  IF EXISTS (SELECT FROM spillgate.days WHERE day = p_day) THEN
    RETURN;
  END IF;
  EXECUTE format('CREATE TABLE spillgate.%I (LIKE spillgate.entries INCLUDING DEFAULTS)', name);
  EXECUTE format('WITH moved AS (DELETE FROM spillgate.entries_other WHERE "timestamp" >= %s AND "timestamp" < %s'
    ' RETURNING *) INSERT INTO spillgate.%I SELECT * FROM moved', since, since + 86400000, name);
  EXECUTE format('ALTER TABLE spillgate.entries ATTACH PARTITION spillgate.%I FOR VALUES FROM (%s) TO (%s)',
    name, since, since + 86400000);
  INSERT INTO spillgate.days VALUES (p_day, false, name);
END $$;

-- Sums up all entries of a day that is over. Of the groups of a tenant, the `p_most` with the most entries are kept
-- apart. Later entries of the day are added when they come.
CREATE FUNCTION spillgate.close_day(p_day integer, p_most integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  of_day spillgate.days;
BEGIN
  PERFORM spillgate.hold_day(p_day, true);
  SELECT * INTO of_day FROM spillgate.days WHERE day = p_day;
  IF NOT FOUND OR of_day.closed THEN
    RETURN;
  END IF;
  EXECUTE format('CREATE TRIGGER add_late AFTER INSERT ON spillgate.%I FOR EACH ROW'
    ' EXECUTE FUNCTION spillgate.add_late()', of_day.partition);
  PERFORM spillgate.sum_up(p_day, p_most, true);
  UPDATE spillgate.days SET closed = true WHERE day = p_day;
END $$;

-- Adds up the sums of a day, with those of its entries if `p_entries`.
CREATE FUNCTION spillgate.sum_up(p_day integer, p_most integer, p_entries boolean) RETURNS void LANGUAGE sql AS $$
  WITH former AS (
    DELETE FROM spillgate.day_sums WHERE day = p_day RETURNING *
  ), parts AS (
    SELECT * FROM former
    UNION ALL
    SELECT tenant, p_day, false, type, tool_name, trigger, outcome, status, model, strategy, tool_kind, key, client,
      sum(entries), sum(failed), sum(bytes), sum(tokens_in), sum(tokens_out), sum(tokens_saved), sum(latency),
      sum(cost_usd), sum(tokens_saved_observed), sum(stored), sum(asked_back), sum(found_nothing), sum(costs_more),
      max(latency_max)
    FROM spillgate.amounts
    WHERE p_entries AND "timestamp" >= p_day * 86400000::bigint AND "timestamp" < (p_day + 1) * 86400000::bigint
    GROUP BY tenant, type, tool_name, trigger, outcome, status, model, strategy, tool_kind, key, client
  ), placed AS (
    SELECT parts.*, dense_rank() OVER (PARTITION BY tenant ORDER BY whole DESC, tool_name, type, trigger, outcome,
      status, model, strategy, tool_kind, key, client) > p_most AS is_past
    FROM (
      SELECT parts.*, CASE WHEN is_merged THEN -1 ELSE sum(entries) OVER (PARTITION BY tenant, is_merged, type,
        tool_name, trigger, outcome, status, model, strategy, tool_kind, key, client) END AS whole
      FROM parts
    ) AS parts
  ), told AS (
    SELECT *, is_merged OR is_past AS merges FROM placed
  )
  INSERT INTO spillgate.day_sums
  SELECT tenant, p_day, merges, type, CASE WHEN NOT merges THEN tool_name END, trigger, outcome, status,
    CASE WHEN NOT merges OR type = 'llm' THEN model END, strategy, CASE WHEN NOT merges THEN tool_kind END, key,
    CASE WHEN NOT merges THEN client END, sum(entries), sum(failed), sum(bytes), sum(tokens_in), sum(tokens_out),
    sum(tokens_saved), sum(latency), sum(cost_usd), sum(tokens_saved_observed), sum(stored), sum(asked_back),
    sum(found_nothing), sum(costs_more), max(latency_max)
  FROM told
  GROUP BY tenant, merges, type, 5, trigger, outcome, status, 9, strategy, 11, key, 13
$$;

-- Detaches the partition of a closed day, so that its entries are not found any more.
CREATE FUNCTION spillgate.detach_day(p_day integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  name text;
BEGIN
  PERFORM spillgate.hold_day(p_day, true);
  SELECT partition INTO name FROM spillgate.days WHERE day = p_day AND closed;
  IF name IS NULL OR NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = to_regclass(format('spillgate.%I', name))) THEN
    RETURN;
  END IF;
  INSERT INTO spillgate.histories AS known (tenant, deleted)
  SELECT DISTINCT tenant, (p_day + 1) * 86400000::bigint - 1 FROM spillgate.day_sums WHERE day = p_day
  ON CONFLICT (tenant) DO UPDATE SET deleted = greatest(known.deleted, excluded.deleted);
  EXECUTE format('ALTER TABLE spillgate.entries DETACH PARTITION spillgate.%I', name);
END $$;

CREATE FUNCTION spillgate.drop_day(p_day integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  name text;
  dropped bigint;
BEGIN
  PERFORM spillgate.hold_day(p_day, true);
  SELECT partition INTO name FROM spillgate.days WHERE day = p_day;
  IF name IS NULL THEN
    RETURN 0;
  END IF;
  EXECUTE format('SELECT sum(counted) FROM (SELECT count(*) AS counted, spillgate.count_usage(tenant, 0, -count(*),'
    ' -sum(size)) FROM spillgate.%I GROUP BY tenant) AS gone', name) INTO dropped;
  EXECUTE format('DROP TABLE spillgate.%I', name);
  UPDATE spillgate.days SET partition = NULL WHERE day = p_day;
  RETURN coalesce(dropped, 0);
END $$;

-- Deletes the sums of days before the first day that is kept.
CREATE FUNCTION spillgate.forget_days(p_first integer) RETURNS void LANGUAGE sql AS $$
  WITH gone AS (
    DELETE FROM spillgate.day_sums WHERE day < p_first RETURNING tenant
  )
  INSERT INTO spillgate.histories AS known (tenant, forgotten)
  SELECT DISTINCT tenant, p_first * 86400000::bigint FROM gone
  ON CONFLICT (tenant) DO UPDATE SET forgotten = greatest(known.forgotten, excluded.forgotten);
  DELETE FROM spillgate.days WHERE day < p_first AND partition IS NULL;
$$;

-- Deletes what is left of a tenant without entries and sessions.
CREATE FUNCTION spillgate.forget_tenant(p_tenant text) RETURNS void LANGUAGE sql AS $$
  DELETE FROM spillgate.day_sums WHERE tenant = p_tenant;
  DELETE FROM spillgate.histories WHERE tenant = p_tenant;
  DELETE FROM spillgate.receipts WHERE tenant = p_tenant;
  DELETE FROM spillgate.findings WHERE tenant = p_tenant;
  DELETE FROM spillgate.usages WHERE tenant = p_tenant;
$$;

-- Marks a day that was copied from another ledger: day_sums includes all its entries.
CREATE FUNCTION spillgate.note_copied(p_day integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  of_day spillgate.days;
BEGIN
  SELECT * INTO of_day FROM spillgate.days WHERE day = p_day FOR UPDATE;
  IF NOT of_day.closed THEN
    EXECUTE format('CREATE TRIGGER add_late AFTER INSERT ON spillgate.%I FOR EACH ROW'
      ' EXECUTE FUNCTION spillgate.add_late()', of_day.partition);
    UPDATE spillgate.days SET closed = true WHERE day = p_day;
  END IF;
END $$;
