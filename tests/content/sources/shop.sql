-- CREATE TABLE old_orders (id integer);
CREATE TABLE shop.orders (
  id bigint PRIMARY KEY,
  note text DEFAULT 'CREATE TABLE no'
);

create unique index if not exists orders_note on shop.orders (note);

/*
CREATE VIEW gone AS SELECT 1;
*/
CREATE OR REPLACE VIEW open_orders AS
SELECT * FROM shop.orders;

CREATE FUNCTION total(integer) RETURNS integer AS $$
  SELECT $1 * 2;
$$ LANGUAGE sql;
